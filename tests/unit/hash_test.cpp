#include "math/hash.hpp"

#include <gtest/gtest.h>

namespace actzip::math {
namespace {

// Expected values were computed from section 4 of format.md with Python's integers.

TEST(Hash, MixMatchesTheFormat) {
  EXPECT_EQ(mix(0), 0U);
  EXPECT_EQ(mix(1), 0x688990c0U);
  EXPECT_EQ(mix(0x12345678U), 0xf5e71c96U);
  EXPECT_EQ(mix(0xffffffffU), 0x6768824aU);
}

struct Golden {
  std::uint64_t seed;
  std::uint32_t k0;
  std::uint32_t k1;
  std::uint32_t words[6];   ///< of the counters below
  std::uint32_t scales[3];  ///< upper halves, of groups 0, 1 and 2^33
};
constexpr std::uint64_t kCounters[6] = {0, 1, 2, 0xffffffffU, std::uint64_t{1} << 32, 0x123456789aU};
constexpr std::uint64_t kGroups[3] = {0, 1, std::uint64_t{1} << 33};
constexpr Golden kGolden[] = {
    {0,
     0xae6f80f1U,
     0x90b942ffU,
     {0x5b9854c2U, 0x9dba7a6cU, 0xade5e4b6U, 0x4e3f9487U, 0x9c982a30U, 0xe85619c3U},
     {0xabbeU, 0xf064U, 0xa5d0U}},
    {1,
     0xa07c7a97U,
     0xad40a667U,
     {0xd2bc9aa0U, 0x44e32dc3U, 0x3e3fe2c0U, 0x2c2a22f4U, 0x49ff5266U, 0x5dfcbd3fU},
     {0xcf7aU, 0x0a91U, 0x2cd8U}},
    {0x0123456789abcdefU,
     0xf380be2fU,
     0x05fc012dU,
     {0xc5de2a75U, 0x034fbe59U, 0xd489e1abU, 0x79a15448U, 0xf22afd99U, 0x2eb9cdcaU},
     {0x121cU, 0x3647U, 0x6535U}},
    {0xffffffffffffffffU,
     0x8fad8c62U,
     0xaa90b76eU,
     {0x9de695b2U, 0x3b3e6e68U, 0x5cda255bU, 0x315f0835U, 0x07539809U, 0xdd26c6b1U},
     {0x8067U, 0x255bU, 0xa013U}},
};

TEST(Hash, KeysMatchTheFormat) {
  for (const Golden& golden : kGolden) {
    EXPECT_EQ(hash_key(golden.seed).k0, golden.k0);
    EXPECT_EQ(hash_key(golden.seed).k1, golden.k1);
  }
}

TEST(Hash, WordsMatchTheFormatForCountersOf64Bits) {
  for (const Golden& golden : kGolden) {
    for (int i = 0; i < 6; ++i) EXPECT_EQ(hash_word64(hash_key(golden.seed), kCounters[i]), golden.words[i]);
  }
}

TEST(Hash, AKeyThatHasTheUpperHalfCountsIn32Bits) {
  const HashKey key = hash_key(7);
  EXPECT_EQ(hash_word(key.for_upper(0x12), 0x3456789aU), hash_word64(key, 0x123456789aU));
  EXPECT_EQ(hash_word(key, 5), hash_word64(key, 5));
}

TEST(Hash, TheStartIsLinearInTheLowest16BitsOfTheCounter) {
  const HashKey key = hash_key(7);
  for (const std::uint32_t low : {0U, 1U, 0x8001U, 0xffffU}) {
    EXPECT_EQ(hash_start(key, 0x12340000U ^ low), hash_start(key, 0x12340000U) ^ low);
    EXPECT_EQ(hash_finish(key, hash_start(key, 0x12340000U) ^ low), hash_word(key, 0x12340000U ^ low));
  }
}

TEST(Hash, ScalesHaveAStreamOfTheirOwn) {
  for (const Golden& golden : kGolden) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(hash_word64(hash_key(golden.seed).for_scales(), kGroups[i]) >> 16, golden.scales[i]);
    }
  }
}

}  // namespace
}  // namespace actzip::math
