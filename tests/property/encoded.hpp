// Reads encoded bytes as format.md describes them, one bit at a time: slow, but independent of the code under test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "actzip/spec.hpp"
#include "math/float_bits.hpp"
#include "support/device_memory.hpp"

namespace actzip::testing {

struct Pair {
  double first;   ///< min or mean
  double second;  ///< step or scale
};

/// Returns the statistics of group `g`.
inline Pair read_stats(StatsType type, const Bytes& bytes, std::int64_t g) {
  const auto i = static_cast<std::size_t>(g);
  if (type == StatsType::f32) {
    float pair[2];
    std::memcpy(pair, bytes.data() + 8 * i, sizeof(pair));
    return {pair[0], pair[1]};
  }
  std::uint16_t pair[2];
  std::memcpy(pair, bytes.data() + 4 * i, sizeof(pair));
  return {math::bf16_to_f32(pair[0]), math::bf16_to_f32(pair[1])};
}

/// Returns code `i` of a run that starts at byte `run`.
inline std::uint32_t read_code(const Bytes& bytes, std::int64_t run, int bits, std::int64_t i) {
  std::uint32_t code = 0;
  for (int b = 0; b < bits; ++b) {
    const std::int64_t bit = i * bits + b;
    const auto byte = std::to_integer<std::uint32_t>(bytes[static_cast<std::size_t>(run + bit / 8)]);
    code |= ((byte >> (bit % 8)) & 1U) << b;
  }
  return code;
}

}  // namespace actzip::testing
