#include "format/bits.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace actzip::format {
namespace {

/// The packing rule, one bit at a time.
std::uint64_t plain_pack(const std::uint32_t (&codes)[8], int bits) {
  std::uint64_t stream = 0;
  for (int i = 0; i < 8; ++i) {
    for (int b = 0; b < bits; ++b) {
      if ((codes[i] >> b & 1U) != 0) stream |= std::uint64_t{1} << (i * bits + b);
    }
  }
  return stream;
}

template <class Body>
void for_each_width(Body body) {
  [&]<int... Less>(std::integer_sequence<int, Less...>) {
    (body.template operator()<Less + 1>(), ...);
  }(std::make_integer_sequence<int, kMaxBits>{});
}

TEST(Bits, PackingFollowsTheRuleForEveryWidth) {
  for_each_width([]<int Bits>() {
    std::mt19937 random(Bits);
    for (int trial = 0; trial < 1000; ++trial) {
      std::uint32_t codes[8];
      for (std::uint32_t& code : codes) code = static_cast<std::uint32_t>(random()) & kMaxCode<Bits>;
      const std::uint64_t packed = pack8<Bits>(codes);
      ASSERT_EQ(packed, plain_pack(codes, Bits));
      for (int i = 0; i < 8; ++i) ASSERT_EQ(unpack<Bits>(packed, i), codes[i]);
    }
  });
}

TEST(Bits, WhatStandsAboveACodeDoesNotReachItsNeighbours) {
  for_each_width([]<int Bits>() {
    std::uint32_t codes[8];
    std::fill_n(codes, 8, ~kMaxCode<Bits>);
    EXPECT_EQ(pack8<Bits>(codes), 0U) << Bits;
  });
}

TEST(Bits, EightCodesFillAsManyBytesAsTheyHaveBits) {
  for_each_width([]<int Bits>() {
    std::uint32_t codes[8];
    std::fill_n(codes, 8, kMaxCode<Bits>);
    EXPECT_EQ(pack8<Bits>(codes), ~std::uint64_t{0} >> (64 - 8 * Bits)) << Bits;
  });
}

}  // namespace
}  // namespace actzip::format
