// The packing rule: code i occupies bits [i*B, (i+1)*B) of a little-endian bit stream. Eight codes fill exactly B
// bytes, whatever the width, so one loop serves all widths.
#pragma once

#include <cstdint>

#include "macros.hpp"

namespace actzip::format {

template <int Bits>
inline constexpr std::uint32_t kMaxCode = (1U << Bits) - 1U;

/// Code `i` of eight; the first one is in the lowest bits.
template <int Bits>
ACTZIP_HD constexpr std::uint32_t unpack(std::uint64_t packed, int i) {
  return static_cast<std::uint32_t>(packed >> (i * Bits)) & kMaxCode<Bits>;
}

static_assert(unpack<3>(0x1f58d1, 0) == 1 && unpack<3>(0x1f58d1, 6) == 7, "the 3-bit example of the format");

}  // namespace actzip::format
