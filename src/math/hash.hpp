// Random numbers as a hash of (seed, counter): format.md, section 4. There is no generator state.
#pragma once

#include <cstdint>
#include <type_traits>

#include "macros.hpp"

namespace actzip::math {

ACTZIP_HD constexpr std::uint32_t mix(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  return x ^ (x >> 16);
}

struct HashKey {
  std::uint32_t k0 = 0;
  std::uint32_t k1 = 0;

  /// Independent streams under the same seed, for `rotated`: the rounding of its scale, and its second signs.
  [[nodiscard]] ACTZIP_HD constexpr HashKey for_scales() const { return {k0, k1 ^ 0x27d4eb2fU}; }
  [[nodiscard]] ACTZIP_HD constexpr HashKey for_second_signs() const { return {k0, k1 ^ 0x165667b1U}; }

  /// Folds the upper half of a 64-bit counter into the key, so that loops count in 32 bits.
  [[nodiscard]] ACTZIP_HD constexpr HashKey for_upper(std::uint32_t upper) const {
    return {k0 ^ (upper * 0x9e3779b9U), k1};
  }
};

/// Seeds are often 0, 1, 2, ..., so they are mixed first: neighbouring seeds then have nothing in common.
ACTZIP_HD constexpr HashKey hash_key(std::uint64_t seed) {
  const auto lo = static_cast<std::uint32_t>(seed);
  const auto hi = static_cast<std::uint32_t>(seed >> 32);
  const std::uint32_t k0 = mix(lo ^ mix(hi ^ 0x9e3779b9U));
  return {k0, mix(k0 ^ 0x85ebca6bU)};
}

/// The first part of hash_word(). Loops compute it once for 2^16 counters: for `low` below 2^16, hash_start(key,
/// counter ^ low) equals hash_start(key, counter) ^ low.
template <class Word = std::uint32_t>
ACTZIP_HD constexpr Word hash_start(HashKey key, std::type_identity_t<Word> counter) {
  const Word x = counter ^ key.k0;
  return x ^ (x >> 16);
}

template <class Word = std::uint32_t>
ACTZIP_HD constexpr Word hash_finish(HashKey key, std::type_identity_t<Word> x) {
  x *= 0x7feb352dU;
  x ^= (x >> 15) ^ key.k1;
  x *= 0x846ca68bU;
  return x ^ (x >> 16);
}

/// The hash of a counter's lower half, under a key that contains the upper half (HashKey::for_upper). `Word` may also
/// be a vector of such words.
template <class Word = std::uint32_t>
ACTZIP_HD constexpr Word hash_word(HashKey key, std::type_identity_t<Word> counter) {
  return hash_finish<Word>(key, hash_start<Word>(key, counter));
}

ACTZIP_HD constexpr std::uint32_t hash_word64(HashKey key, std::uint64_t counter) {
  return hash_word(key.for_upper(static_cast<std::uint32_t>(counter >> 32)), static_cast<std::uint32_t>(counter));
}

}  // namespace actzip::math
