// binary32, bf16 and f16 as bits, with the rounding rules of format.md, section 5: the same on host and device.
#pragma once

#include <cstdint>

#include "macros.hpp"

namespace actzip::math {

inline constexpr std::uint32_t kNanF32 = 0x7fc00000U;
inline constexpr std::uint16_t kNanBf16 = 0x7fc0U;
inline constexpr std::uint16_t kNanF16 = 0x7e00U;

ACTZIP_HD constexpr std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
ACTZIP_HD constexpr float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

ACTZIP_HD constexpr bool is_nan(float x) { return x != x; }

ACTZIP_HD constexpr float bf16_to_f32(std::uint16_t half) { return float_of(static_cast<std::uint32_t>(half) << 16); }

/// To nearest even; an overflow gives an infinity.
ACTZIP_HD constexpr std::uint16_t f32_to_bf16(float x) {
  if (is_nan(x)) return kNanBf16;
  const std::uint32_t bits = bits_of(x);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

/// The greatest bf16 number that is not above `x`, as a float. `x` is finite.
ACTZIP_HD constexpr float bf16_down(float x) {
  const std::uint32_t bits = bits_of(x);
  const bool away = (bits >> 31) != 0 && (bits & 0xffffU) != 0;  // below zero, rounding down increases the magnitude
  return float_of((bits & 0xffff0000U) + (away ? 0x10000U : 0U));
}

/// The least bf16 number that is not below `x`, as a float. `x` is finite.
ACTZIP_HD constexpr float bf16_up(float x) { return -bf16_down(-x); }

ACTZIP_HD constexpr float f16_to_f32(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7fffU;
  if (magnitude >= 0x7c00U) return float_of(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13));
  // Exponent and mantissa, shifted into place, read as x * 2^-112. The product is exact and handles subnormals.
  return float_of(sign | bits_of(float_of(magnitude << 13) * 0x1p112F));
}

/// To nearest even; an overflow gives an infinity.
ACTZIP_HD constexpr std::uint16_t f32_to_f16(float x) {
  if (is_nan(x)) return kNanF16;
  const std::uint32_t bits = bits_of(x);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // from 65520 on
  if (magnitude < 0x38800000U) {                                                    // below 2^-14: subnormal
    // The last place of 0.5 is 2^-24, like that of f16's subnormals: the addition rounds, and the subtraction of bits
    // gives the result as an integer.
    const std::uint32_t rounded = bits_of(float_of(magnitude) + 0.5F) - bits_of(0.5F);
    return static_cast<std::uint16_t>(sign | rounded);
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

static_assert(f32_to_bf16(1.00390625F) == 0x3f80 && f32_to_bf16(1.01171875F) == 0x3f82, "ties go to even");
static_assert(bf16_down(-1.001F) == -1.0078125F && bf16_up(1.001F) == 1.0078125F && bf16_up(-1.001F) == -1.0F);
static_assert(f16_to_f32(0x0001) == 0x1p-24F && f32_to_f16(0x1p-24F) == 0x0001 && f32_to_f16(0x1p-25F) == 0);
static_assert(f32_to_f16(65519.9F) == 0x7bff && f32_to_f16(65520.0F) == 0x7c00 && f16_to_f32(0x7bff) == 65504.0F);
static_assert(f32_to_f16(1.0F) == 0x3c00 && f32_to_f16(-2.5F) == 0xc100 && f16_to_f32(0xc100) == -2.5F);

}  // namespace actzip::math
