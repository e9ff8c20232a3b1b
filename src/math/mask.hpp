// The bit of `mask`: format.md, section 8.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "actzip/spec.hpp"
#include "macros.hpp"

namespace actzip::math {

/// The interval of a mask, in a form that is compared without branches.
struct MaskLimits {
  float lo;              ///< NaN if there is no limit, so that every comparison is false
  float hi;              ///< the same
  std::int32_t nan_off;  ///< all ones if the bit of a NaN is 0, else 0
};

constexpr MaskLimits mask_limits(const Mask& spec) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  return {spec.lo == -kInfinity ? kNone : spec.lo, spec.hi == kInfinity ? kNone : spec.hi,
          spec.nan == MaskSide::off ? -1 : 0};
}

/// True where the bit is 0. `Float` may also be a vector.
template <class Float = float>
ACTZIP_HD constexpr auto mask_off(std::type_identity_t<Float> x, const MaskLimits& limits) {
  return (x <= limits.lo) | (x >= limits.hi) | ((x != x) & limits.nan_off);
}

ACTZIP_HD constexpr bool mask_bit(float x, const MaskLimits& limits) { return mask_off(x, limits) == 0; }

}  // namespace actzip::math
