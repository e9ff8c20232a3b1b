// Constants and arithmetic of `rotated`: format.md, section 7.
#pragma once

#include <cstdint>

#include "actzip/spec.hpp"
#include "macros.hpp"
#include "math/float_bits.hpp"
#include "math/hash.hpp"

namespace actzip::math {

template <int Bits>
inline constexpr int kLevelCount = 1 << (Bits - 1);

/// Positive Lloyd-Max level `i` of the unit normal distribution, rounded to bf16 so that tensor cores represent it
/// exactly.
template <int Bits>
ACTZIP_HD constexpr float level(int i) {
  static_assert(Bits >= 1 && Bits <= Rotated::kMostBits);
  if constexpr (Bits == 1) {
    return 0.796875F;
  } else if constexpr (Bits == 2) {
    constexpr float kLevels[] = {0.453125F, 1.5078125F};
    return kLevels[i];
  } else if constexpr (Bits == 3) {
    constexpr float kLevels[] = {0.2451171875F, 0.75390625F, 1.34375F, 2.15625F};
    return kLevels[i];
  } else if constexpr (Bits == 4) {
    constexpr float kLevels[] = {0.1279296875F, 0.388671875F, 0.65625F, 0.94140625F,
                                 1.2578125F,    1.6171875F,   2.0625F,  2.734375F};
    return kLevels[i];
  }
}

/// The cut between levels `i` and `i + 1`, in units of the group's root mean square.
template <int Bits>
ACTZIP_HD constexpr float level_cut(int i) {
  return 0.5F * (level<Bits>(i) + level<Bits>(i + 1));
}

/// The word, and the bit in it, that hold the sign of padded element `e`.
ACTZIP_HD constexpr std::uint64_t sign_word(std::uint64_t e) { return (e >> 10) * 32 + ((e >> 3) & 31); }
ACTZIP_HD constexpr int sign_bit(std::uint64_t e) {
  return static_cast<int>(16 * (e & 1) + 4 * ((e >> 8) & 3) + ((e & 7) >> 1));
}

/// Stochastic rounding to bf16: the noise is added to the dropped bits and may carry into the kept ones. `x` is finite
/// and not negative.
ACTZIP_HD constexpr float bf16_stochastic(float x, std::uint32_t noise16) {
  return float_of((bits_of(x) + noise16) & 0xffff0000U);
}

/// The 16 bits that round the scale of group `g`.
ACTZIP_HD constexpr std::uint32_t scale_noise(HashKey key, std::uint64_t g) {
  return hash_word64(key.for_scales(), g) >> 16;
}

}  // namespace actzip::math
