// The packing rule: code i occupies bits [i*B, (i+1)*B) of a little-endian stream. Eight codes fill exactly B bytes for
// every width, so one loop serves them all.
#pragma once

#include <cstdint>

#include "macros.hpp"

namespace actzip::format {

inline constexpr int kMaxBits = 8;         ///< that any codec has
inline constexpr int kMaxRotatedBits = 4;  ///< that `rotated` has

template <int Bits>
inline constexpr std::uint32_t kMaxCode = (1U << Bits) - 1U;

/// Eight codes as one number, the first in the lowest bits; its lower `Bits` bytes are what is stored.
template <int Bits>
ACTZIP_HD constexpr std::uint64_t pack8(const std::uint32_t (&codes)[8]) {
  std::uint64_t packed = 0;
  for (int i = 0; i < 8; ++i) packed |= static_cast<std::uint64_t>(codes[i] & kMaxCode<Bits>) << (i * Bits);
  return packed;
}

/// Code `i` of eight that pack8() made.
template <int Bits>
ACTZIP_HD constexpr std::uint32_t unpack(std::uint64_t packed, int i) {
  return static_cast<std::uint32_t>(packed >> (i * Bits)) & kMaxCode<Bits>;
}

namespace detail {
template <int Bits>
constexpr bool round_trips() {
  std::uint32_t codes[8] = {};
  for (std::uint32_t i = 0; i < 8; ++i) codes[i] = (i * 37U + 5U) & kMaxCode<Bits>;
  codes[0] = 0;
  codes[7] = kMaxCode<Bits>;
  const std::uint64_t packed = pack8<Bits>(codes);
  for (int i = 0; i < 8; ++i) {
    if (unpack<Bits>(packed, i) != codes[i]) return false;
  }
  if constexpr (Bits < 8) return (packed >> (8 * Bits)) == 0;
  return true;
}
}  // namespace detail

static_assert(detail::round_trips<1>() && detail::round_trips<2>() && detail::round_trips<3>() &&
              detail::round_trips<4>() && detail::round_trips<5>() && detail::round_trips<6>() &&
              detail::round_trips<7>() && detail::round_trips<8>());
static_assert(pack8<3>({1, 2, 3, 4, 5, 6, 7, 0}) == 0x1f58d1, "the 3-bit example of the format");

}  // namespace actzip::format
