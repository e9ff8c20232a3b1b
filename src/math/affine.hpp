// The arithmetic of `affine`: format.md, section 6. Values are binary32; every operation is rounded once, and what is
// fused says so.
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
  float floor;  ///< what lies below it is taken as this
};

/// Greatest magnitude that a group may hold: twice its range still fits, whatever the width.
inline constexpr float kAffineLimit = 0x1p126F;
/// Least step but 0: its reciprocal is finite.
inline constexpr float kAffineStepFloor = 0x1p-126F;
/// What takes no value as another.
inline constexpr float kAffineNoFloor = Affine{}.floor;

/// 1/Q of a width.
ACTZIP_HD constexpr float affine_inverse_levels(int bits) { return 1.0F / static_cast<float>((1 << bits) - 1); }

/// `least` and `greatest` are those of the group's values; either is NaN if any value is.
ACTZIP_HD constexpr AffineGroup affine_group(float inverse_levels, float least, float greatest, StatsType stats,
                                             float floor) {
  const float lo = least < floor ? floor : least;  // a NaN stays
  const float hi = greatest < floor ? floor : greatest;
  if (!(lo >= -kAffineLimit && hi <= kAffineLimit)) return {float_of(kNanF32), 0.0F, 0.0F, 0U, floor};
  const float min = (stats == StatsType::bf16 ? bf16_down(lo) : lo) + 0.0F;
  const float range = hi - min;
  if (range == 0.0F) return {min, 0.0F, 0.0F, ~0U, floor};
  const float exact = range * inverse_levels;
  const float rounded = stats == StatsType::bf16 ? bf16_up(exact) : exact;
  const float step = rounded < kAffineStepFloor ? kAffineStepFloor : rounded;
  return {min, step, 1.0F / step, ~0U, floor};
}

/// The same for a width that is known when it is compiled.
template <int Bits>
ACTZIP_HD constexpr AffineGroup affine_group(float least, float greatest, StatsType stats, float floor) {
  constexpr float kInverseLevels = affine_inverse_levels(Bits);
  return affine_group(kInverseLevels, least, greatest, stats, floor);
}

/// Bits behind the point in affine_steps(): where the code begins once the noise is added.
template <bool Noisy>
inline constexpr int kAffineCodeBit = Noisy ? 8 : 0;

/// The operations of affine_steps() that the compiler does not know for vectors.
struct ScalarOperations {
  /// The greater; of a number and a NaN either will do.
  ACTZIP_HD static float max(float a, float b) { return __builtin_fmaxf(a, b); }
  /// a * b + c, rounded once.
  ACTZIP_HD static float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
};

/// How many steps `x` lies above the minimum, rounded to nearest even, as a fixed-point number in the lower 16 bits;
/// what stands above them is undefined. The code of `x` is this plus, if it is noisy, the noise byte, from bit
/// kAffineCodeBit on. Adding 2^15, or 1.5 * 2^23, leaves the number in the mantissa: no conversion instruction, which
/// would cost four times as much on a GPU. Only what is not noisy may have a floor. `Float` and `Word` may also be
/// vectors, with `Operations` for them, and so may the numbers of the group.
template <bool Noisy, class Float = float, class Word = std::uint32_t, class Operations = ScalarOperations,
          class Group = AffineGroup>
ACTZIP_HD constexpr Word affine_steps(std::type_identity_t<Float> x, const Group& group) {
  if constexpr (!Noisy) x = Operations::max(x, group.floor);
  return __builtin_bit_cast(Word, Operations::fused(x - group.min, group.inverse, Noisy ? 0x1p15F : 0x1.8p23F));
}

/// Bits of the number that stands for code 0: 2^14 + 256, which has a last place of 1/512; and where code 1 begins.
inline constexpr int kAffineValueBit = 9;
inline constexpr std::uint32_t kAffineZero = 0x46800000U + (256U << kAffineValueBit);

/// What a code decodes to, given kAffineZero + (code << kAffineValueBit), or for dithered rounding 255 - 2 * noise more
/// than that. `Float` and `Word` may also be vectors, and so may `Number`.
template <class Float = float, class Word = std::uint32_t, class Number = float>
ACTZIP_HD constexpr Float affine_value(Word bits, Number min, Number step) {
  return (__builtin_bit_cast(Float, bits) - float_of(kAffineZero)) * step + min;
}

/// A code as affine_value() takes it. `Word` may also be a vector.
template <bool Dithered, class Word = std::uint32_t>
ACTZIP_HD constexpr Word affine_number(std::type_identity_t<Word> code, std::type_identity_t<Word> noise) {
  Word bits = kAffineZero + (code << kAffineValueBit);
  if constexpr (Dithered) bits += 255U - 2U * noise;
  return bits;
}

/// The value of a code. `Float` and `Word` may also be vectors, and so may `Number`.
template <bool Dithered, class Float = float, class Word = std::uint32_t, class Number = float>
ACTZIP_HD constexpr Float affine_dequantize(std::type_identity_t<Word> code, Number min, Number step,
                                            std::type_identity_t<Word> noise) {
  return affine_value<Float, Word>(affine_number<Dithered, Word>(code, noise), min, step);
}

}  // namespace actzip::math
