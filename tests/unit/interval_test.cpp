#include "actzip/interval.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "math/element.hpp"
#include "math/mask.hpp"

namespace actzip {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float rounded(DType dtype, float x) {
  if (dtype == DType::f16) return math::f16_to_f32(math::f32_to_f16(x));
  return dtype == DType::bf16 ? math::bf16_to_f32(math::f32_to_bf16(x)) : x;
}

TEST(Interval, TheTwoValuesLieOnTheirSidesInEveryType) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  int masks = 0;
  for (int i = 0; i < 20000; ++i) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      const float scale = std::exp2(std::floor(normal(random) * 4));
      const float lower = rounded(dtype, normal(random) * scale);
      const float upper = rounded(dtype, lower + std::abs(normal(random)) * scale);
      const auto mask = interval_mask({lower, upper}, dtype);
      if (!mask) continue;
      ++masks;
      const auto limits = math::mask_limits(*mask);
      EXPECT_FALSE(math::mask_bit(rounded(dtype, mask->off), limits)) << lower << " " << upper;
      EXPECT_TRUE(math::mask_bit(rounded(dtype, mask->on), limits)) << lower << " " << upper;
    }
  }
  EXPECT_GT(masks, 50000);
}

TEST(Interval, LimitsMustBeNumbersOfTheType) {
  EXPECT_TRUE(interval_mask({0.1F, 0.9F}, DType::f32));
  EXPECT_FALSE(interval_mask({0.1F, 0.875F}, DType::bf16));
  EXPECT_FALSE(interval_mask({0.125F, 0.9F}, DType::f16));
  EXPECT_TRUE(interval_mask({0.125F, 0.875F}, DType::f16));
  EXPECT_FALSE(interval_mask({70000.0F, kInf}, DType::f16)) << "f16 has no such number";
  EXPECT_FALSE(interval_mask({kNan, 1.0F}, DType::f32));
  EXPECT_FALSE(interval_mask({0.0F, 1.0F}, DType::i32));
}

TEST(Interval, SomethingMustLieInside) {
  EXPECT_FALSE(interval_mask({2.0F, 2.0F}, DType::f32));
  EXPECT_FALSE(interval_mask({3.0F, 2.0F}, DType::f32));
  EXPECT_FALSE(interval_mask({1.0F, std::nextafter(1.0F, 2.0F)}, DType::f32));
  EXPECT_FALSE(interval_mask({1.0F, 1.0078125F}, DType::bf16)) << "neighbours in bf16";
  EXPECT_TRUE(interval_mask({1.0F, 1.0078125F}, DType::f16));
}

TEST(Interval, AnInfiniteLimitIsNone) {
  const auto above = interval_mask({0.0F, kInf}, DType::f32);
  ASSERT_TRUE(above);
  EXPECT_TRUE(math::mask_bit(kInf, math::mask_limits(*above)));
  EXPECT_FALSE(math::mask_bit(-kInf, math::mask_limits(*above)));
  const auto below = interval_mask({-kInf, 2.0F}, DType::f16);
  ASSERT_TRUE(below);
  EXPECT_TRUE(math::mask_bit(-kInf, math::mask_limits(*below)));
  EXPECT_FALSE(math::mask_bit(kInf, math::mask_limits(*below)));
  EXPECT_EQ(below->off, 2.0F);
}

TEST(Interval, NanGoesWhereItIsSaidTo) {
  EXPECT_TRUE(math::mask_bit(kNan, math::mask_limits(*interval_mask({0.0F, 6.0F}, DType::f32))));
  EXPECT_FALSE(math::mask_bit(kNan, math::mask_limits(*interval_mask({0.0F, kInf, MaskSide::off}, DType::f32))));
}

}  // namespace
}  // namespace actzip
