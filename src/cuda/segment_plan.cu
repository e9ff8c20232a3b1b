// Distributes bits over segments: one kernel computes the weights, one distributes the bits.
#include "cuda/backend.hpp"
#include "cuda/block_sum.cuh"
#include "dispatch.hpp"
#include "math/element.hpp"

namespace actzip::cuda {
namespace {

constexpr int kPerLane = static_cast<int>(math::GroupSample::kGroup) / kWarp;
constexpr int kGroupsAtOnce = 2;  ///< per warp, for more loads in flight

__device__ float warp_sum(float value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(~0U, value, offset);
  return value;
}

/// Computes the weights, one block for each segment.
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

/// The weights of a plan, in shared memory, and the operations that all threads of a block do together on them.
struct SharedPlan {
  const float* weights;
  int count;
  const math::BitSteps& steps;

  /// The least limit such that at most `bits` bits save more than it. Each warp tries another limit.
  [[nodiscard]] __device__ std::uint32_t limit_for(int bits) const {
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

  /// Calls visit(segment, bits) for each segment, on one of the threads. `bits` is the total beyond the least bits of
  /// all segments.
  template <class Visit>
  __device__ void share_out(int bits, Visit visit) const {
    const std::uint32_t limit = limit_for(bits);
    const int each = (count + kSumThreads - 1) / kSumThreads;
    const int first = static_cast<int>(threadIdx.x) * each;
    const int last = min(first + each, count);
    int above = 0;
    int equal = 0;
    for (int s = first; s < last; ++s) {
      above += steps.above(weights[s], limit);
      equal += steps.equal(weights[s], limit);
    }
    int left = bits - block_sum(above).all - block_sum(equal).before;
    for (int s = first; s < last; ++s) {
      visit(s, math::granted_bits(steps, weights[s], limit, left));
      left -= steps.equal(weights[s], limit);
    }
  }

  /// The error of all segments, each weighted by its weight, summed from the segments that each thread has visited.
  struct WeightedError {
    float sum = 0.0F;
    float error = 0.0F;

    __device__ void take(const SharedPlan& plan, int s, int bits) {
      sum += plan.weights[s];
      error += plan.weights[s] * plan.steps.error[bits];
    }
    [[nodiscard]] __device__ float all() const {
      const float all_sum = block_sum(sum).all;
      const float all_error = block_sum(error).all;
      return all_sum > 0.0F ? all_error / all_sum : 0.0F;
    }
  };
};

/// Number of averages between the least and the most bits. A thread block of its own computes the error for each.
__host__ __device__ int inner_averages(const math::BitSteps& steps) { return max(steps.most - steps.least - 1, 0); }

/// Writes the error that a plan with another average would have.
__device__ void note_error_at(const SharedPlan& plan, int average, int bits, SegmentSummary& summary) {
  const int own_bits = (average - plan.steps.least) * plan.count;
  if (own_bits == bits) return;  // the first block writes this one
  SharedPlan::WeightedError weighted;
  plan.share_out(own_bits, [&](int s, int granted) { weighted.take(plan, s, granted); });
  const float error = weighted.all();
  if (threadIdx.x == 0) summary.error_at[average - 1] = error;
}

/// The bits that this thread has granted.
struct Granted {
  int fewest = math::BitSteps::kMost;
  int most = 0;
  int total = 0;
  SharedPlan::WeightedError weighted;

  __device__ void take(const SharedPlan& plan, int s, int bits) {
    fewest = min(fewest, bits);
    most = max(most, bits);
    total += bits;
    weighted.take(plan, s, bits);
  }
};

/// Writes the summary except for the errors at inner averages; of those it writes the one that equals the plan's own
/// average, if any.
__device__ void summarise(const SharedPlan& plan, int bits, const Granted& granted, SegmentSummary& summary) {
  __shared__ int extremes[2];
  const math::BitSteps& steps = plan.steps;
  if (threadIdx.x == 0) {
    extremes[0] = math::BitSteps::kMost;
    extremes[1] = 0;
  }
  __syncthreads();
  const int fewest = __reduce_min_sync(~0U, granted.fewest);
  const int most = __reduce_max_sync(~0U, granted.most);
  if (threadIdx.x % kWarp == 0) {
    atomicMin(&extremes[0], fewest);
    atomicMax(&extremes[1], most);
  }
  const int total = block_sum(granted.total).all;  // includes a barrier, after which extremes[] is complete
  const float error = granted.weighted.all();
  if (threadIdx.x != 0) return;
  summary.fewest_bits = extremes[0];
  summary.most_bits = extremes[1];
  summary.mean_bits = static_cast<float>(total) / static_cast<float>(plan.count);
  summary.error = error;
  for (int average = 1; average <= math::BitSteps::kMost; ++average) {
    const int own = min(max(average, steps.least), steps.most);
    if (own == steps.least || own == steps.most) {
      summary.error_at[average - 1] = math::error_at_end(steps, own, error);
    } else if ((own - steps.least) * plan.count == bits) {
      summary.error_at[average - 1] = error;
    }
  }
}

/// The first block fills the table. If there is a summary, the other blocks compute the errors at other averages for
/// it.
__global__ void __launch_bounds__(kSumThreads)
    plan_segments_kernel(const float* weights, int count, int bits, const __grid_constant__ math::BitSteps steps,
                         std::uint8_t* table, SegmentSummary* summary) {
  __shared__ float own[kMostPlannedSegments];
  for (int s = static_cast<int>(threadIdx.x); s < count; s += kSumThreads) own[s] = math::usable_weight(weights[s]);
  __syncthreads();
  const SharedPlan plan{own, count, steps};
  if (blockIdx.x > 0) return note_error_at(plan, steps.least + static_cast<int>(blockIdx.x), bits, *summary);
  Granted granted;
  plan.share_out(bits, [&](int s, int own_bits) {
    table[s] = static_cast<std::uint8_t>(own_bits);
    granted.take(plan, s, own_bits);
  });
  if (summary != nullptr) summarise(plan, bits, granted, *summary);
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
  const int others = job.summary != nullptr ? inner_averages(job.steps) : 0;
  launch_blocks(plan_segments_kernel, 1 + others, kSumThreads, *job.stream, job.weights, static_cast<int>(job.count),
                static_cast<int>(job.total_bits - job.steps.least * job.count), job.steps,
                reinterpret_cast<std::uint8_t*>(job.table), job.summary);
}

}  // namespace actzip::cuda
