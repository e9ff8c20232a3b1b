// Bits for segments: one kernel weighs them, one block shares the bits out.
#include "cuda/backend.hpp"
#include "cuda/block_sum.cuh"
#include "dispatch.hpp"
#include "math/element.hpp"

namespace actzip::cuda {
namespace {

constexpr int kPerLane = static_cast<int>(math::GroupSample::kGroup) / kWarp;
constexpr int kGroupsAtOnce = 2;  ///< of one warp: loads in flight

__device__ float warp_sum(float value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(~0U, value, offset);
  return value;
}

/// One block for each segment.
template <DType Type>
__global__ void __launch_bounds__(kSumThreads)
    weigh_segments_kernel(const typename math::Element<Type>::Storage* data, std::int64_t segment_elems,
                          const float* factors, float* weights) {
  const auto* const segment = data + static_cast<std::int64_t>(blockIdx.x) * segment_elems;
  const auto sample = math::GroupSample::of(segment_elems);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float energy = 0.0F;
  for (std::int64_t i = threadIdx.x / kWarp * kGroupsAtOnce; i < sample.count; i += kSumWarps * kGroupsAtOnce) {
    float values[kGroupsAtOnce][kPerLane];
#pragma unroll
    for (int g = 0; g < kGroupsAtOnce; ++g) {
      const auto* const group = segment + sample.first(i + g) + lane;
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) {
        values[g][k] = i + g < sample.count ? math::Element<Type>::widen(group[k * kWarp]) : 0.0F;
      }
    }
#pragma unroll
    for (int g = 0; g < kGroupsAtOnce; ++g) {
      float sum = 0.0F;
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) sum += values[g][k];
      const float mean = warp_sum(sum) / static_cast<float>(math::GroupSample::kGroup);
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) energy += (values[g][k] - mean) * (values[g][k] - mean);
    }
  }
  const float all = block_sum(energy).all;
  const float* const factor = factors != nullptr ? factors + blockIdx.x : nullptr;
  if (threadIdx.x == 0) weights[blockIdx.x] = math::segment_weight(all, factor);
}

/// The weights of a plan, in shared memory, and what all threads of its block do with them together.
struct SharedPlan {
  static constexpr int kEach = static_cast<int>(kMostPlannedSegments) / kSumThreads;  ///< segments of one thread

  const float* weights;
  int count;
  const math::BitSteps& steps;

  /// The least limit above which there are no more bits to buy than `bits`. Each warp tries another one.
  [[nodiscard]] __device__ std::uint32_t limit_for(std::int64_t bits) const {
    __shared__ bool is_enough[kSumWarps];
    static_assert(kSumWarps == kWarp, "each lane reads what one warp found");
    const auto warp = static_cast<int>(threadIdx.x) / kWarp;
    const auto lane = static_cast<int>(threadIdx.x) % kWarp;
    std::uint32_t low = 0;
    std::uint32_t high = math::kGreatestKey;
    while (low < high) {
      const auto tried = [&](int which) {
        return low + static_cast<std::uint32_t>(static_cast<std::uint64_t>(high - low) * which / kSumWarps);
      };
      int above = 0;
      for (int s = lane; s < count; s += kWarp) above += steps.above(weights[s], tried(warp));
      above = __reduce_add_sync(~0U, above);
      if (lane == 0) is_enough[warp] = above <= bits;
      __syncthreads();
      const unsigned found = __ballot_sync(~0U, is_enough[lane]);
      const int first = found != 0 ? __ffs(static_cast<int>(found)) - 1 : kSumWarps;
      const std::uint32_t next_low = first == 0 ? low : tried(first - 1) + 1;
      if (first < kSumWarps) high = tried(first);
      low = next_low;
      __syncthreads();
    }
    return low;
  }

  /// visit(segment, bits) on some thread for each, with `bits` above the least in total.
  template <class Visit>
  __device__ void share_out(std::int64_t bits, Visit visit) const {
    const std::uint32_t limit = limit_for(bits);
    const int first = static_cast<int>(threadIdx.x) * kEach;
    const int last = min(first + kEach, count);
    std::int64_t above = 0;
    std::int64_t equal = 0;
    for (int s = first; s < last; ++s) {
      above += steps.above(weights[s], limit);
      equal += steps.equal(weights[s], limit);
    }
    std::int64_t left = bits - block_sum(above).all - block_sum(equal).before;
    for (int s = first; s < last; ++s) {
      visit(s, math::granted_bits(steps, weights[s], limit, left));
      left -= steps.equal(weights[s], limit);
    }
  }

  [[nodiscard]] __device__ float weighted_error(std::int64_t bits) const {
    float sum = 0.0F;
    float error = 0.0F;
    share_out(bits, [&](int s, int own) {
      sum += weights[s];
      error += weights[s] * steps.error[own];
    });
    const float all = block_sum(sum).all;
    const float all_error = block_sum(error).all;
    return all > 0.0F ? all_error / all : 0.0F;
  }
};

__device__ void summarise(const SharedPlan& plan, std::int64_t bits, const std::uint8_t* table,
                          SegmentSummary* summary) {
  __shared__ int extremes[2];
  const math::BitSteps& steps = plan.steps;
  if (threadIdx.x == 0) {
    extremes[0] = steps.most;
    extremes[1] = steps.least;
  }
  __syncthreads();  // the table is written, too
  int total = 0;
  for (int s = static_cast<int>(threadIdx.x); s < plan.count; s += kSumThreads) {
    total += table[s];
    atomicMin(&extremes[0], static_cast<int>(table[s]));
    atomicMax(&extremes[1], static_cast<int>(table[s]));
  }
  const int all = block_sum(total).all;
  SegmentSummary found;
  found.error = plan.weighted_error(bits);
  for (int average = 1; average <= math::BitSteps::kMost; ++average) {
    const int own = min(max(average, steps.least), steps.most);
    const bool is_end = own == steps.least || own == steps.most;
    const std::int64_t own_bits = static_cast<std::int64_t>(own - steps.least) * plan.count;
    found.error_at[average - 1] = is_end             ? math::error_at_end(steps, own, found.error)
                                  : own_bits == bits ? found.error
                                                     : plan.weighted_error(own_bits);
  }
  if (threadIdx.x != 0) return;
  found.fewest_bits = extremes[0];
  found.most_bits = extremes[1];
  found.mean_bits = static_cast<float>(all) / static_cast<float>(plan.count);
  *summary = found;
}

__global__ void __launch_bounds__(kSumThreads)
    plan_segments_kernel(const float* weights, int count, std::int64_t bits,
                         const __grid_constant__ math::BitSteps steps, std::uint8_t* table, SegmentSummary* summary) {
  __shared__ float own[kMostPlannedSegments];
  for (int s = static_cast<int>(threadIdx.x); s < count; s += kSumThreads) own[s] = math::usable_weight(weights[s]);
  __syncthreads();
  const SharedPlan plan{own, count, steps};
  plan.share_out(bits, [&](int s, int granted) { table[s] = static_cast<std::uint8_t>(granted); });
  if (summary != nullptr) summarise(plan, bits, table, summary);
}

}  // namespace

void weigh_segments(const codec::WeighJob& job) {
  with_float(job.dtype, [&]<DType Type>() {
    launch_blocks(weigh_segments_kernel<Type>, job.count, kSumThreads, *job.stream,
                  static_cast<const typename math::Element<Type>::Storage*>(job.src), job.segment_elems, job.factors,
                  job.weights);
  });
}

void plan_segments(const codec::SegmentPlanJob& job) {
  launch_blocks(plan_segments_kernel, 1, kSumThreads, *job.stream, job.weights, static_cast<int>(job.count),
                job.total_bits - job.steps.least * job.count, job.steps, reinterpret_cast<std::uint8_t*>(job.table),
                job.summary);
}

}  // namespace actzip::cuda
