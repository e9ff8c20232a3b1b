#include "math/float_bits.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace actzip::math {
namespace {

std::uint16_t half_of(std::uint32_t i) { return static_cast<std::uint16_t>(i); }

/// A walk through all of binary32 (infinities, NaNs and subnormals included) with a stride that shares no factor with
/// 2^32, and every point where a conversion to 16 bits changes its result, with both its neighbours.
std::vector<float> telling_floats() {
  std::vector<float> floats;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 4099) {
    floats.push_back(float_of(static_cast<std::uint32_t>(bits)));
  }
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto add_middle = [&](float low, float high) {
    const float middle = low + 0.5F * (high - low);
    for (const float x : {std::nextafter(middle, -kInf), middle, std::nextafter(middle, kInf)}) {
      floats.push_back(x);
      floats.push_back(-x);
    }
  };
  for (std::uint32_t i = 0; i + 1 < 0x7c00; ++i) add_middle(f16_to_f32(half_of(i)), f16_to_f32(half_of(i + 1)));
  for (std::uint32_t i = 0; i + 1 < 0x7f80; ++i) add_middle(bf16_to_f32(half_of(i)), bf16_to_f32(half_of(i + 1)));
  add_middle(65504.0F, 65536.0F);
  floats.push_back(kInf);
  floats.push_back(-kInf);
  floats.push_back(std::numeric_limits<float>::max());
  floats.push_back(std::numeric_limits<float>::quiet_NaN());
  return floats;
}

/// The nearer of the two bf16 numbers around x, measured in binary64; ties to the even one.
std::uint16_t nearest_bf16(float x) {
  if (std::isnan(x)) return kNanBf16;
  const std::uint32_t towards_zero = bits_of(x) >> 16;
  if (std::isinf(x)) return half_of(towards_zero);
  const auto value = [](std::uint32_t half) {
    const double sign = (half & 0x8000U) != 0 ? -1.0 : 1.0;
    if ((half & 0x7fffU) == 0x7f80U) return sign * 0x1p128;
    return static_cast<double>(float_of(half << 16));
  };
  const double below = std::abs(x - value(towards_zero));
  const double above = std::abs(x - value(towards_zero + 1));
  const bool away = above < below || (above == below && (towards_zero & 1U) != 0);
  return half_of(towards_zero + (away ? 1 : 0));
}

TEST(FloatBits, EveryBf16SurvivesWideningAndNarrowing) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const float wide = bf16_to_f32(half_of(i));
    ASSERT_EQ(f32_to_bf16(wide), std::isnan(wide) ? kNanBf16 : half_of(i)) << i;
  }
}

TEST(FloatBits, EveryF16SurvivesWideningAndNarrowing) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const float wide = f16_to_f32(half_of(i));
    ASSERT_EQ(f32_to_f16(wide), std::isnan(wide) ? kNanF16 : half_of(i)) << i;
  }
}

// Clang has the type on x86 from version 15 on.
#if !defined(__clang__) || __clang_major__ >= 15
__extension__ using CompilerF16 = _Float16;

std::uint16_t compiler_f32_to_f16(float x) { return __builtin_bit_cast(std::uint16_t, static_cast<CompilerF16>(x)); }
float compiler_f16_to_f32(std::uint16_t half) { return static_cast<float>(__builtin_bit_cast(CompilerF16, half)); }

TEST(FloatBits, EveryF16WidensAsTheCompilerWidensIt) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const float expected = compiler_f16_to_f32(half_of(i));
    const float wide = f16_to_f32(half_of(i));
    ASSERT_EQ(std::isnan(wide), std::isnan(expected)) << i;
    if (std::isnan(expected)) continue;
    ASSERT_EQ(bits_of(wide), bits_of(expected)) << i;
  }
}

TEST(FloatBits, NarrowingToF16RoundsAsTheCompilerDoes) {
  for (const float x : telling_floats()) {
    ASSERT_EQ(f32_to_f16(x), std::isnan(x) ? kNanF16 : compiler_f32_to_f16(x)) << std::hexfloat << x;
  }
}
#endif

TEST(FloatBits, NarrowingToBf16TakesTheNearestAndTheEvenOneOfTwo) {
  for (const float x : telling_floats()) ASSERT_EQ(f32_to_bf16(x), nearest_bf16(x)) << std::hexfloat << x;
}

TEST(FloatBits, RoundingDownGivesTheGreatestBf16NotAbove) {
  for (const float x : telling_floats()) {
    if (!std::isfinite(x)) continue;
    const float down = bf16_down(x);
    ASSERT_EQ(bits_of(down) & 0xffffU, 0U) << std::hexfloat << x;
    ASSERT_LE(down, x) << std::hexfloat << x;
    if (down == x) continue;
    // The next bf16 above `down`: one more in magnitude if positive, one less if negative.
    const float next = float_of(bits_of(down) + (std::signbit(down) ? -0x10000U : 0x10000U));
    ASSERT_GT(next, x) << std::hexfloat << x;
  }
}

TEST(FloatBits, RoundingUpGivesTheLeastBf16NotBelow) {
  for (const float x : telling_floats()) {
    if (!std::isfinite(x)) continue;
    ASSERT_EQ(bits_of(bf16_up(x)), bits_of(-bf16_down(-x)));
    ASSERT_GE(bf16_up(x), x) << std::hexfloat << x;
  }
}

TEST(FloatBits, OverflowGivesAnInfinityWithItsSign) {
  EXPECT_EQ(f32_to_f16(65520.0F), 0x7c00);
  EXPECT_EQ(f32_to_f16(-1e30F), 0xfc00);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(f32_to_bf16(-std::numeric_limits<float>::max()), 0xff80);
}

TEST(FloatBits, EveryNanBecomesTheCanonicalOne) {
  for (const std::uint32_t bits : {0x7f800001U, 0x7fc00000U, 0x7fffffffU, 0xff800001U, 0xffc00000U, 0xffffffffU}) {
    EXPECT_EQ(f32_to_bf16(float_of(bits)), kNanBf16);
    EXPECT_EQ(f32_to_f16(float_of(bits)), kNanF16);
  }
}

}  // namespace
}  // namespace actzip::math
