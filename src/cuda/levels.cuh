// What the codecs with uniform levels share: their noise, and how four codes are made of four elements at once.
#pragma once

#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/values.cuh"
#include "math/hash.hpp"

namespace actzip::cuda {

/// The noise of one tile: a byte for each of its elements.
class TileNoise {
 public:
  __device__ TileNoise(math::HashKey key, std::int64_t tile)
      : key_(key.for_upper(static_cast<std::uint32_t>(tile * kWords >> 32))),
        start_(math::hash_start(key_, static_cast<std::uint32_t>(tile) * kWords)) {}

  /// Of elements 4 * quad to 4 * quad + 3 of the tile.
  [[nodiscard]] __device__ std::uint32_t of_quad(std::uint32_t quad) const {
    return math::hash_finish(key_, start_ ^ quad);
  }

 private:
  static constexpr std::uint32_t kWords = kTile / 4;
  math::HashKey key_;
  std::uint32_t start_;
};

/// The codes of four elements, a byte each. Two elements share a word while the noise is added: bytes 0 and 2 of it to
/// the even ones, 1 and 3 to the odd ones. The factors are opaque because sums and masks would go to the pipe that has
/// the most to do already.
template <bool Noisy>
[[nodiscard]] __device__ __forceinline__ std::uint32_t four_codes(const std::uint32_t (&steps)[4],
                                                                  std::uint32_t noise) {
  std::uint32_t even = __byte_perm(steps[0], steps[2], 0x5410);
  std::uint32_t odd = __byte_perm(steps[1], steps[3], 0x5410);
  if constexpr (!Noisy) return __byte_perm(even, odd, 0x6240);
  const std::uint32_t odd_noise = __byte_perm(noise, 0, 0x4341);
  even = noise * opaque(1U) + even;
  even = odd_noise * opaque(0U - 256U) + even;
  odd = odd_noise * opaque(1U) + odd;
  return __byte_perm(even, odd, 0x7351);
}

}  // namespace actzip::cuda
