#include "format/bits.hpp"

#include <gtest/gtest.h>

#include <random>
#include <utility>

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

TEST(Bits, CodesLieWhereTheRuleSaysForEveryWidth) {
  [&]<int... Below>(std::integer_sequence<int, Below...>) {
    const auto check = []<int Bits>() {
      std::mt19937 random(Bits);
      for (int trial = 0; trial < 1000; ++trial) {
        std::uint32_t codes[8];
        for (std::uint32_t& code : codes) code = static_cast<std::uint32_t>(random()) & kMaxCode<Bits>;
        const std::uint64_t packed = plain_pack(codes, Bits);
        for (int i = 0; i < 8; ++i) ASSERT_EQ(unpack<Bits>(packed, i), codes[i]);
      }
    };
    (check.template operator()<Below + 1>(), ...);
  }(std::make_integer_sequence<int, 8>{});
}

}  // namespace
}  // namespace actzip::format
