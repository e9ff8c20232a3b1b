// Where the parts of a group lie in an encoded buffer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/loops/level.hpp"
#include "format/geometry.hpp"
#include "math/float_bits.hpp"

namespace actzip::cpu::ACTZIP_CPU_LEVEL {

/// The two statistics of a group, already rounded to their type.
struct Stats {
  float first;
  float second;
};

inline float magnitude(float x) { return math::float_of(math::bits_of(x) & 0x7fffffffU); }

inline void store_stats(std::byte* section, StatsType type, std::int64_t group, Stats stats) {
  const std::uint32_t bits[2] = {math::bits_of(stats.first), math::bits_of(stats.second)};
  if (type == StatsType::f32) {
    __builtin_memcpy(section + group * 8, bits, 8);
  } else {
    const std::uint32_t pair = (bits[0] >> 16) | (bits[1] & 0xffff0000U);
    __builtin_memcpy(section + group * 4, &pair, 4);
  }
}

inline Stats load_stats(const std::byte* section, StatsType type, std::int64_t group) {
  std::uint32_t bits[2];
  if (type == StatsType::f32) {
    __builtin_memcpy(bits, section + group * 8, 8);
  } else {
    std::uint32_t pair;
    __builtin_memcpy(&pair, section + group * 4, 4);
    bits[0] = pair << 16;
    bits[1] = pair & 0xffff0000U;
  }
  return {math::float_of(bits[0]), math::float_of(bits[1])};
}

/// Offset in the buffer of the first code of a group.
inline std::int64_t codes_offset(const format::Geometry& geometry, const format::Sections& sections,
                                 const format::GroupRange& range, int bits) {
  return sections.codes + 4 * range.segment * sections.code_words + range.number * geometry.group * bits / 8;
}

/// Offset in the buffer of the first mask word of a group.
inline std::int64_t mask_offset(const format::Geometry& geometry, const format::Sections& sections,
                                const format::GroupRange& range) {
  return sections.mask + 4 * range.segment * sections.mask_words + range.number * geometry.group / 8;
}

/// Calls body.operator()<Bits>() for a width of 1 to Most. The function of dispatch.hpp would be shared between
/// instruction sets.
template <int Most, class Body>
void with_width(int bits, Body body) {
  if constexpr (Most > 1) {
    if (bits < Most) return with_width<Most - 1>(bits, body);
  }
  body.template operator()<Most>();
}

constexpr int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

}  // namespace actzip::cpu::ACTZIP_CPU_LEVEL
