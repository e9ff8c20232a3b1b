// Distributes bits over segments on the CPU.
#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/backend.hpp"
#include "cpu/float_mode.hpp"
#include "dispatch.hpp"
#include "math/element.hpp"

namespace actzip::cpu {

namespace {

/// Sum of squares around the mean.
template <DType Type>
double group_energy(const typename math::Element<Type>::Storage* elements) {
  constexpr auto kGroup = static_cast<std::size_t>(math::GroupSample::kGroup);
  double sum = 0.0;
  double squares = 0.0;
  for (std::size_t i = 0; i < kGroup; ++i) {
    const double x = math::Element<Type>::widen(elements[i]);
    sum += x;
    squares += x * x;
  }
  return std::max(0.0, squares - sum * sum / static_cast<double>(kGroup));
}

template <DType Type>
void weigh_one(const codec::WeighJob& job, std::int64_t segment) {
  const auto* elements =
      static_cast<const typename math::Element<Type>::Storage*>(job.src) + segment * job.segment_elems;
  const auto sample = math::GroupSample::of(job.segment_elems);
  double energy = 0.0;
  for (std::int64_t i = 0; i < sample.count; ++i) energy += group_energy<Type>(elements + sample.first(i));
  const float* factor = job.factors != nullptr ? job.factors + segment : nullptr;
  job.weights[segment] = math::segment_weight(static_cast<float>(energy), factor);
}

/// The least limit such that at most `bits` bits save more than it.
std::uint32_t limit_for(const std::vector<float>& weights, const math::BitSteps& steps, std::int64_t bits) {
  std::uint32_t low = 0;
  std::uint32_t high = math::kGreatestKey;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    std::int64_t above = 0;
    for (const float weight : weights) above += steps.above(weight, middle);
    if (above <= bits) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/// Calls visit(segment, bits) for each segment in order. `bits` is the total beyond the least bits of all segments.
template <class Visit>
void share_out(const std::vector<float>& weights, const math::BitSteps& steps, std::int64_t bits, Visit visit) {
  const std::uint32_t limit = limit_for(weights, steps, bits);
  std::int64_t left = bits;
  for (const float weight : weights) left -= steps.above(weight, limit);
  for (std::size_t s = 0; s < weights.size(); ++s) {
    visit(s, math::granted_bits(steps, weights[s], limit, left));
    left -= steps.equal(weights[s], limit);
  }
}

double weighted_error(const std::vector<float>& weights, const math::BitSteps& steps, std::int64_t bits) {
  double sum = 0.0;
  double error = 0.0;
  share_out(weights, steps, bits, [&](std::size_t s, int own) {
    sum += weights[s];
    error += static_cast<double>(weights[s]) * steps.error[own];
  });
  return sum > 0.0 ? error / sum : 0.0;
}

}  // namespace

void weigh_segments(const codec::WeighJob& job) {
  with_float(job.dtype, [&]<DType Type>() {
    const auto task = [](void* opaque, std::int64_t segment) {
      const FloatMode mode;
      weigh_one<Type>(*static_cast<const codec::WeighJob*>(opaque), segment);
    };
    job.stream->executor().run(job.count, task, const_cast<codec::WeighJob*>(&job));
  });
}

void plan_segments(const codec::SegmentPlanJob& job) {
  const FloatMode mode;
  const math::BitSteps& steps = job.steps;
  std::vector<float> weights(job.weights, job.weights + job.count);
  for (float& weight : weights) weight = math::usable_weight(weight);
  const std::int64_t bits = job.total_bits - steps.least * job.count;
  SegmentSummary summary{.fewest_bits = steps.most, .most_bits = steps.least};
  std::int64_t total = 0;
  share_out(weights, steps, bits, [&](std::size_t s, int own) {
    job.table[s] = static_cast<std::byte>(own);
    total += own;
    summary.fewest_bits = std::min(summary.fewest_bits, own);
    summary.most_bits = std::max(summary.most_bits, own);
  });
  if (job.summary == nullptr) return;
  summary.mean_bits = static_cast<float>(total) / static_cast<float>(job.count);
  summary.error = static_cast<float>(weighted_error(weights, steps, bits));
  for (int average = 1; average <= math::BitSteps::kMost; ++average) {
    const int own = std::clamp(average, steps.least, steps.most);
    const bool is_end = own == steps.least || own == steps.most;
    summary.error_at[average - 1] =
        is_end ? math::error_at_end(steps, own, summary.error)
               : static_cast<float>(weighted_error(weights, steps, (own - steps.least) * job.count));
  }
  std::memcpy(job.summary, &summary, sizeof summary);
}

}  // namespace actzip::cpu
