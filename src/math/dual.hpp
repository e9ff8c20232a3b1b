// The arithmetic of `dual`: format.md, section 9. The residuals of a map are coded like a group of `affine`.
#pragma once

#include <cstdint>

#include "macros.hpp"
#include "math/affine.hpp"
#include "math/float_bits.hpp"

namespace actzip::math {

/// The average of `count` elements as it is stored; 0 if there are none. The test for -0 compares bits, because adding
/// 0 would change the bits of a NaN on some devices.
ACTZIP_HD constexpr float dual_average(float sum, float count) {
  constexpr std::uint16_t kMinusZero = 0x8000;
  const std::uint16_t average = count == 0.0F ? std::uint16_t{0} : f32_to_bf16(sum / count);
  return bf16_to_f32(average == kMinusZero ? std::uint16_t{0} : average);
}

/// The residual of a block's least or greatest element. It is the least or greatest residual of the block, because
/// rounding preserves order. NaN if the average lies beyond +-kAffineLimit or is NaN.
ACTZIP_HD constexpr float dual_residual(float extreme, float average) {
  const bool usable = average >= -kAffineLimit && average <= kAffineLimit;
  return usable ? extreme - average : float_of(kNanF32);
}

/// The lesser; NaN if either is.
ACTZIP_HD constexpr float lesser_or_nan(float a, float b) { return a < b || is_nan(a) ? a : b; }

/// What the codes of a map refer to. A map without elements has the extremes +inf and -inf.
ACTZIP_HD constexpr AffineGroup dual_group(float inverse_levels, float least, float greatest) {
  if (least > greatest) return {0.0F, 0.0F, 0.0F, ~0U, kAffineNoFloor};
  return affine_group(inverse_levels, least, greatest, StatsType::bf16, kAffineNoFloor);
}
}  // namespace actzip::math
