// The arithmetic of `affine`: format.md, section 6. Values are binary32; every operation is rounded once.
#pragma once

#include <cstdint>
#include <type_traits>

#include "actzip/spec.hpp"
#include "macros.hpp"
#include "math/float_bits.hpp"

namespace actzip::math {

/// What a group's codes are relative to. `keep` is all ones, or 0 for a group that cannot be represented, whose codes
/// are 0 and whose `min` is NaN.
struct AffineGroup {
  float min;
  float step;
  float inverse;  ///< 1 / step, or 0
  std::uint32_t keep;
};

/// Greatest magnitude that a group may hold: twice its range still fits, whatever the width.
inline constexpr float kAffineLimit = 0x1p126F;
/// Least step but 0: its reciprocal is finite.
inline constexpr float kAffineStepFloor = 0x1p-126F;

/// `lo` and `hi` are the least and the greatest value; either is NaN if any value is.
template <int Bits>
ACTZIP_HD constexpr AffineGroup affine_group(float lo, float hi, StatsType stats) {
  constexpr float kInverseLevels = 1.0F / static_cast<float>((1 << Bits) - 1);
  if (!(lo >= -kAffineLimit && hi <= kAffineLimit)) return {float_of(kNanF32), 0.0F, 0.0F, 0U};
  const float min = (stats == StatsType::bf16 ? bf16_down(lo) : lo) + 0.0F;
  const float range = hi - min;
  if (range == 0.0F) return {min, 0.0F, 0.0F, ~0U};
  const float exact = range * kInverseLevels;
  const float rounded = stats == StatsType::bf16 ? bf16_up(exact) : exact;
  const float step = rounded < kAffineStepFloor ? kAffineStepFloor : rounded;
  return {min, step, 1.0F / step, ~0U};
}

/// A noise byte as affine_quantize() takes it: the bits of 2^15 + noise/256.
inline constexpr std::uint32_t kAffineNoise = 0x47000000U;

/// The code of `x`, in the lowest bits; what stands above them is undefined. `noise` is kAffineNoise | noise byte.
/// Adding 1.5 * 2^23, or 2^15 + noise/256, leaves the rounded number in the mantissa: no conversion instruction, which
/// would cost four times as much on a GPU. `Float` and `Word` may also be vectors.
template <bool Noisy, class Float = float, class Word = std::uint32_t>
ACTZIP_HD constexpr Word affine_quantize(std::type_identity_t<Float> x, const AffineGroup& group,
                                         std::type_identity_t<Word> noise) {
  const Float t = (x - group.min) * group.inverse;
  if constexpr (Noisy) {
    return __builtin_bit_cast(Word, t + __builtin_bit_cast(Float, noise)) >> 8;
  } else {
    return __builtin_bit_cast(Word, t + 0x1.8p23F);
  }
}

/// The value of a code. `Float` and `Word` may also be vectors.
template <bool Dithered, class Float = float, class Word = std::uint32_t>
ACTZIP_HD constexpr Float affine_dequantize(std::type_identity_t<Word> code, float min, float step,
                                            std::type_identity_t<Word> noise) {
  // 2^14 + 256 + code + (255 - 2 noise)/512, whose last place is 1/512, is an integer sum of bits; the offset of 256
  // keeps it inside one binade.
  constexpr std::uint32_t kBase = 0x46800000U + (256U << 9);
  Word bits = kBase + (code << 9);
  if constexpr (Dithered) bits += 255U - 2U * noise;
  return (__builtin_bit_cast(Float, bits) - float_of(kBase)) * step + min;
}

}  // namespace actzip::math
