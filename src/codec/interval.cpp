#include "actzip/interval.hpp"

#include <algorithm>
#include <cmath>

#include "math/element.hpp"

namespace actzip {

namespace {

/// The nearest number of a floating type, or nothing for other types.
std::optional<float> rounded_to(DType dtype, float x) {
  switch (dtype) {
    case DType::f32: return x;
    case DType::f16: return math::f16_to_f32(math::f32_to_f16(x));
    case DType::bf16: return math::bf16_to_f32(math::f32_to_bf16(x));
    default: return std::nullopt;
  }
}

/// A number far from both limits, so that rounding does not move it across one.
float middle_of(const Interval& interval) {
  const bool has_lower = std::isfinite(interval.lower);
  const bool has_upper = std::isfinite(interval.upper);
  if (has_lower && has_upper) return interval.lower / 2 + interval.upper / 2;
  if (has_lower) return interval.lower + std::max(1.0F, std::abs(interval.lower));
  return has_upper ? interval.upper - std::max(1.0F, std::abs(interval.upper)) : 0.0F;
}

}  // namespace

std::optional<Mask> interval_mask(const Interval& interval, DType dtype) {
  const bool has_numbers =
      rounded_to(dtype, interval.lower) == interval.lower && rounded_to(dtype, interval.upper) == interval.upper;
  if (!has_numbers) return std::nullopt;
  const auto inside = rounded_to(dtype, middle_of(interval));
  if (!inside || !(interval.lower < *inside && *inside < interval.upper)) return std::nullopt;
  const float outside = std::isfinite(interval.lower) ? interval.lower : interval.upper;
  return Mask{.lo = interval.lower, .hi = interval.upper, .off = outside, .on = *inside, .nan = interval.nan};
}

}  // namespace actzip
