#include "math/affine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "format/bits.hpp"

namespace actzip::math {
namespace {

/// Calls body.operator()<Bits>() for each width.
template <class Body>
void for_each_width(Body body) {
  [&]<int... Less>(std::integer_sequence<int, Less...>) {
    (body.template operator()<Less + 1>(), ...);
  }(std::make_integer_sequence<int, 8>{});
}

template <bool Noisy>
std::uint32_t code_of(float x, const AffineGroup& group, std::uint32_t noise) {
  return ((affine_steps<Noisy>(x, group) & 0xffffU) + noise) >> kAffineCodeBit<Noisy>;
}

TEST(Affine, NoCodeLeavesItsBitsWhateverTheRangeAndTheNoise) {
  for_each_width([]<int Bits>() {
    std::mt19937 random(Bits);
    std::normal_distribution<float> mantissa;
    std::uniform_int_distribution<int> exponent(-130, 124);
    for (int trial = 0; trial < 20000; ++trial) {
      const float a = std::ldexp(mantissa(random), exponent(random));
      const float b = trial % 2 == 0 ? a + std::abs(a) * 0.01F : std::ldexp(mantissa(random), exponent(random));
      const float lo = std::clamp(std::min(a, b), -kAffineLimit, kAffineLimit);
      const float hi = std::clamp(std::max(a, b), -kAffineLimit, kAffineLimit);
      for (const StatsType stats : {StatsType::bf16, StatsType::f32}) {
        const AffineGroup group = affine_group<Bits>(lo, hi, stats, kAffineNoFloor);
        for (const float x : {lo, hi}) {
          ASSERT_LE(code_of<true>(x, group, 0), format::kMaxCode<Bits>) << lo << " " << hi;
          ASSERT_LE(code_of<true>(x, group, 255U), format::kMaxCode<Bits>) << lo << " " << hi;
          ASSERT_LE(code_of<false>(x, group, 0), format::kMaxCode<Bits>) << lo << " " << hi;
        }
      }
    }
  });
}

TEST(Affine, AConstantGroupIsExactIfItsValueIsAStatistic) {
  const AffineGroup group = affine_group<2>(1.5F, 1.5F, StatsType::bf16, kAffineNoFloor);
  EXPECT_EQ(group.step, 0.0F);
  EXPECT_EQ(affine_dequantize<false>(code_of<true>(1.5F, group, 255U), group.min, group.step, 0), 1.5F);
}

TEST(Affine, ANegativeZeroBecomesAPositiveStatistic) {
  EXPECT_EQ(bits_of(affine_group<2>(-0.0F, -0.0F, StatsType::bf16, kAffineNoFloor).min), 0U);
  EXPECT_EQ(bits_of(affine_group<2>(-0.0F, -0.0F, StatsType::f32, kAffineNoFloor).min), 0U);
}

TEST(Affine, AGroupWithANanOrAnInfinityIsNotKept) {
  const float nan = float_of(kNanF32);
  for (const AffineGroup& group : {affine_group<2>(nan, 1.0F, StatsType::bf16, kAffineNoFloor),
                                   affine_group<2>(0.0F, nan, StatsType::f32, kAffineNoFloor),
                                   affine_group<2>(0.0F, INFINITY, StatsType::bf16, kAffineNoFloor),
                                   affine_group<2>(-0x1p127F, 0.0F, StatsType::bf16, kAffineNoFloor)}) {
    EXPECT_EQ(group.keep, 0U);
    EXPECT_EQ(bits_of(group.min), kNanF32);
    EXPECT_EQ(group.step, 0.0F);
  }
}

TEST(Affine, AFloorTakesInfinitiesBelowItAndLeavesWhatCannotBeKeptVisible) {
  const AffineGroup below = affine_group<8>(-INFINITY, -33.0F, StatsType::f32, -32.0F);
  EXPECT_EQ(below.min, -32.0F);
  EXPECT_EQ(below.step, 0.0F);
  EXPECT_EQ(below.keep, ~0U);
  const AffineGroup across = affine_group<8>(-INFINITY, 0.0F, StatsType::f32, -32.0F);
  for (const float x : {-INFINITY, -1e9F, -33.0F, -32.0F}) EXPECT_EQ(code_of<false>(x, across, 0), 0U) << x;
  EXPECT_EQ(code_of<false>(0.0F, across, 0), 255U);
  const float nan = float_of(kNanF32);
  for (const float floor : {kAffineNoFloor, -32.0F}) {
    EXPECT_EQ(affine_group<8>(nan, nan, StatsType::f32, floor).keep, 0U);
    EXPECT_EQ(affine_group<8>(-1.0F, INFINITY, StatsType::f32, floor).keep, 0U);
  }
  EXPECT_EQ(affine_group<8>(-INFINITY, 0.0F, StatsType::f32, kAffineNoFloor).keep, 0U);
}

TEST(Affine, StochasticCodesAreUnbiasedOverTheNoise) {
  const AffineGroup group = affine_group<2>(0.0F, 3.0F, StatsType::f32, kAffineNoFloor);
  int sum = 0;
  for (std::uint32_t noise = 0; noise < 256; ++noise) {
    sum += static_cast<int>(code_of<true>(1.25F, group, noise));
  }
  EXPECT_EQ(sum, 320) << "256 * 1.25";
}

TEST(Affine, DitherIsSubtractedExactly) {
  for (std::uint32_t noise = 0; noise < 256; ++noise) {
    for (std::uint32_t code = 0; code < 256; ++code) {
      const float expected = static_cast<float>(code) + (255.0F - 2.0F * static_cast<float>(noise)) / 512.0F;
      ASSERT_EQ(affine_dequantize<true>(code, 0.0F, 1.0F, noise), expected);
    }
  }
}

}  // namespace
}  // namespace actzip::math
