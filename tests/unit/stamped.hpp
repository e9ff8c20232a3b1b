// Memory filled with identifiable patterns, for tests of allocators and stores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "actzip/memory.hpp"

namespace actzip::test {

/// Returns a word of a seed's pattern. The patterns of different seeds have no parts in common.
inline std::uint64_t word_of(std::uint64_t seed, std::size_t index) {
  std::uint64_t word = (seed + 1) * 0x9E3779B97F4A7C15ULL + index * 0xD1342543DE82EF95ULL;
  return word ^ (word >> 29U);
}

inline void stamp(const Allocation& bytes, std::uint64_t seed) {
  for (std::size_t at = 0; at < bytes.size; at += 8) {
    const std::uint64_t word = word_of(seed, at);
    std::memcpy(bytes.data + at, &word, bytes.size - at < 8 ? bytes.size - at : 8);
  }
}

inline bool has_stamp(const Allocation& bytes, std::uint64_t seed) {
  for (std::size_t at = 0; at < bytes.size; at += 8) {
    const std::uint64_t word = word_of(seed, at);
    if (std::memcmp(bytes.data + at, &word, bytes.size - at < 8 ? bytes.size - at : 8) != 0) return false;
  }
  return true;
}

/// Returns how long a random test should run: the seconds of ACTZIP_STRESS_SECONDS, or 0 for a few hundred steps.
inline int stress_seconds() {
  const char* const text = std::getenv("ACTZIP_STRESS_SECONDS");
  return text == nullptr ? 0 : std::atoi(text);
}

}  // namespace actzip::test
