// The bit of `mask`: format.md, section 8.
#pragma once

#include <type_traits>

#include "macros.hpp"

namespace actzip::math {

/// Where the bit is 0: written with these comparisons, a NaN gives 1 as PyTorch's threshold backward does. `Float` may
/// also be a vector.
template <class Float = float>
ACTZIP_HD constexpr auto mask_off(std::type_identity_t<Float> x, float lo, float hi) {
  return (x <= lo) | (x >= hi);
}

ACTZIP_HD constexpr bool mask_bit(float x, float lo, float hi) { return mask_off(x, lo, hi) == 0; }

}  // namespace actzip::math
