#include "property/affine_check.hpp"

#include <algorithm>
#include <cmath>

#include "property/encoded.hpp"
#include "support/tensor.hpp"

namespace actzip::testing {
namespace {

/// Greatest error in steps. Noise has 8 bits and t is rounded to 1/256 of a step: that adds 1/512; the factor
/// 1 + 1/256 of `stochastic` leaves room for it.
double error_in_steps(Rounding rounding) {
  switch (rounding) {
    case Rounding::nearest: return 0.5;
    case Rounding::stochastic: return 1.0 + 1.0 / 256;
    case Rounding::dithered: return 0.5 + 1.0 / 512;
  }
  return 0.0;
}

::testing::AssertionResult check_stats(const Affine& spec, double lo, double hi, Pair stats) {
  const double top = (1 << spec.bits.value) - 1;
  const auto [min, step] = stats;
  const auto fail = [&](const char* what) {
    return ::testing::AssertionFailure() << what << ": values in [" << lo << ", " << hi << "], min " << min << ", step "
                                         << step;
  };
  // Rounded outwards by less than one place of bf16, whose subnormals are 2^-133 apart; or not at all.
  const double unit = spec.stats == StatsType::bf16 ? 0x1p-7 : 0x1p-22;
  if (min > lo) return fail("min is above the least value");
  if (min < lo - unit * std::abs(lo) - 0x1p-133) return fail("min is too low");
  if (spec.stats == StatsType::f32 && min != lo) return fail("min in f32 is not the least value");
  const double needed = (hi - min) / top;
  if (step < needed * (1.0 - 0x1p-22)) return fail("step is too small");
  if (step > std::max(needed * (1.0 + unit + 0x1p-22), 0x1p-126)) return fail("step is too large");
  if (hi == min && step != 0.0) return fail("step of a constant group is not 0");
  return ::testing::AssertionSuccess();
}

}  // namespace

::testing::AssertionResult affine_keeps_its_bounds(const Affine& spec, std::span<const double> original,
                                                   const Bytes& encoded, std::span<const double> decoded, DType out) {
  const auto group = static_cast<std::size_t>(spec.group.value);
  const double top = (1 << spec.bits.value) - 1;
  const auto floored = [&](double x) { return std::max(x, static_cast<double>(spec.floor)); };
  for (std::size_t first = 0; first < original.size(); first += group) {
    const auto values = original.subspan(first, std::min(group, original.size() - first));
    const auto [lo, hi] = std::minmax_element(values.begin(), values.end());
    const Pair stats = read_stats(spec.stats, encoded, static_cast<std::int64_t>(first / group));
    if (auto result = check_stats(spec, floored(*lo), floored(*hi), stats); !result) return result;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double got = decoded[first + i];
      // The operations of section 6 are rounded to binary32, the result once more to the output type.
      const double arithmetic = 4 * 0x1p-24 * (std::abs(stats.first) + (top + 1.0) * stats.second) + 0x1p-149;
      const double output = roundoff(out) * (std::abs(got) + arithmetic) + least(out) / 2;
      const double allowed = error_in_steps(spec.rounding) * stats.second + arithmetic + output;
      if (std::abs(got - floored(values[i])) <= allowed) continue;
      return ::testing::AssertionFailure() << "element " << first + i << " was " << values[i] << " and became " << got
                                           << ": more than " << allowed << " apart (step " << stats.second << ")";
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace actzip::testing
