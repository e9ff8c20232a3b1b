// The arithmetic of `affine`: format.md, section 6. Values are binary32. Every operation is rounded once; the only
// fused one is named as such.
#pragma once

#include <cstdint>
#include <type_traits>

#include "actzip/spec.hpp"
#include "macros.hpp"
#include "math/float_bits.hpp"

namespace actzip::math {

/// What a group's codes refer to. `keep` is all ones, or 0 for an unrepresentable group, whose codes are 0 and whose
/// `min` is NaN.
struct AffineGroup {
  float min;
  float step;
  float inverse;  ///< 1 / step, or 0
  std::uint32_t keep;
  float floor;  ///< values below it count as this value
};

/// Greatest magnitude that a group may hold. Decoding computes up to 1.5 times a group's range, which is then still
/// finite.
inline constexpr float kAffineLimit = 0x1p126F;
/// Least step other than 0: its reciprocal is finite.
inline constexpr float kAffineStepFloor = 0x1p-126F;
/// The floor that replaces no value.
inline constexpr float kAffineNoFloor = Affine{}.floor;

/// 1/Q for a width.
ACTZIP_HD constexpr float affine_inverse_levels(int bits) { return 1.0F / static_cast<float>((1 << bits) - 1); }

/// `least` and `greatest` are the extremes of the group's values. At least one of them is NaN if any value is.
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

/// The same for a width known at compile time.
template <int Bits>
ACTZIP_HD constexpr AffineGroup affine_group(float least, float greatest, StatsType stats, float floor) {
  constexpr float kInverseLevels = affine_inverse_levels(Bits);
  return affine_group(kInverseLevels, least, greatest, stats, floor);
}

/// Number of fractional bits of affine_steps(): the code starts at this bit once the noise is added.
template <bool Noisy>
inline constexpr int kAffineCodeBit = Noisy ? 8 : 0;

/// The operations of affine_steps() that the compiler does not provide for vectors.
struct ScalarOperations {
  /// The greater value; of a number and a NaN it may return either.
  ACTZIP_HD static float max(float a, float b) { return __builtin_fmaxf(a, b); }
  /// a * b + c, rounded once.
  ACTZIP_HD static float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
};

/// How many steps `x` lies above the minimum, rounded to nearest even, as a fixed-point number in the lower 16 bits;
/// the upper bits are undefined. The code of `x` starts at bit kAffineCodeBit of this number, plus the noise byte if
/// rounding is noisy. Adding 2^15, or 1.5 * 2^23, leaves the number in the mantissa. That avoids a conversion
/// instruction, which would cost four times as much on a GPU. Only rounding without noise may have a floor. `Float`,
/// `Word` and the group's numbers may also be vectors, with `Operations` for them.
template <bool Noisy, class Float = float, class Word = std::uint32_t, class Operations = ScalarOperations,
          class Group = AffineGroup>
ACTZIP_HD constexpr Word affine_steps(std::type_identity_t<Float> x, const Group& group) {
  if constexpr (!Noisy) x = Operations::max(x, group.floor);
  return __builtin_bit_cast(Word, Operations::fused(x - group.min, group.inverse, Noisy ? 0x1p15F : 0x1.8p23F));
}

/// Code 0 is represented by the number 2^14 + 256. Its last place is 1/512, so code 1 is 1 << kAffineValueBit more.
inline constexpr int kAffineValueBit = 9;
inline constexpr std::uint32_t kAffineZero = 0x46800000U + (256U << kAffineValueBit);

/// The decoded value of kAffineZero + (code << kAffineValueBit), to which dithered rounding adds 255 - 2 * noise.
/// `Float`, `Word` and `Number` may also be vectors.
template <class Float = float, class Word = std::uint32_t, class Number = float>
ACTZIP_HD constexpr Float affine_value(Word bits, Number min, Number step) {
  return (__builtin_bit_cast(Float, bits) - float_of(kAffineZero)) * step + min;
}

/// A code in the form that affine_value() expects. `Word` may also be a vector.
template <bool Dithered, class Word = std::uint32_t>
ACTZIP_HD constexpr Word affine_number(std::type_identity_t<Word> code, std::type_identity_t<Word> noise) {
  Word bits = kAffineZero + (code << kAffineValueBit);
  if constexpr (Dithered) bits += 255U - 2U * noise;
  return bits;
}

/// The decoded value of a code. `Float`, `Word` and `Number` may also be vectors.
template <bool Dithered, class Float = float, class Word = std::uint32_t, class Number = float>
ACTZIP_HD constexpr Float affine_dequantize(std::type_identity_t<Word> code, Number min, Number step,
                                            std::type_identity_t<Word> noise) {
  return affine_value<Float, Word>(affine_number<Dithered, Word>(code, noise), min, step);
}

}  // namespace actzip::math
