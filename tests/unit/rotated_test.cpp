#include "math/rotated.hpp"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace actzip::math {
namespace {

TEST(Rotated, SignsLieWhereTheFormatSays) {
  // (e, word, bit), computed from section 4 of format.md with Python's integers.
  struct Place {
    std::uint64_t e;
    std::uint64_t word;
    int bit;
  };
  for (const Place& place : {Place{0, 0, 0}, Place{1, 0, 16}, Place{7, 0, 19}, Place{8, 1, 0}, Place{255, 31, 19},
                             Place{256, 0, 4}, Place{1023, 31, 31}, Place{1024, 32, 0}, Place{5000, 145, 12},
                             Place{(std::uint64_t{1} << 40) + 777, 34359738369U, 28}}) {
    EXPECT_EQ(sign_word(place.e), place.word);
    EXPECT_EQ(sign_bit(place.e), place.bit);
  }
}

TEST(Rotated, NoTwoElementsShareASign) {
  std::set<std::pair<std::uint64_t, int>> places;
  for (std::uint64_t e = 0; e < 4096; ++e) EXPECT_TRUE(places.emplace(sign_word(e), sign_bit(e)).second) << e;
  EXPECT_EQ(places.rbegin()->first, 127U) << "4,096 signs fill 128 words";
}

template <int Bits>
void expect_bf16_levels() {
  for (int i = 0; i < kLevelCount<Bits>; ++i) {
    EXPECT_EQ(bf16_down(level<Bits>(i)), level<Bits>(i)) << Bits << " bits, level " << i;
  }
}

TEST(Rotated, EveryLevelIsABf16Number) {
  expect_bf16_levels<1>();
  expect_bf16_levels<2>();
  expect_bf16_levels<3>();
  expect_bf16_levels<4>();
}

TEST(Rotated, CutsAreTheMiddlesOfLevels) {
  EXPECT_EQ(level_cut<2>(0), 0.98046875F);
  EXPECT_EQ(level_cut<4>(6), 2.3984375F);
}

TEST(Rotated, StochasticRoundingOfAScaleIsUnbiasedOverItsNoise) {
  const float x = 1.0F + 0x1.234p-8F;
  double sum = 0.0;
  for (std::uint32_t noise = 0; noise < 65536; ++noise) {
    const float rounded = bf16_stochastic(x, noise);
    EXPECT_TRUE(rounded == bf16_down(x) || rounded == bf16_up(x));
    sum += rounded;
  }
  EXPECT_DOUBLE_EQ(sum / 65536.0, x);
}

}  // namespace
}  // namespace actzip::math
