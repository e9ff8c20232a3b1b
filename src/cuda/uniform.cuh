// What the codecs with uniform levels share: noise, making four codes from four elements at once, and decoding codes to
// numbers.
#pragma once

#include <cstdint>

#include "cuda/chunk.cuh"
#include "cuda/launch.cuh"
#include "cuda/values.cuh"
#include "format/bits.hpp"
#include "math/affine.hpp"
#include "math/hash.hpp"

namespace actzip::cuda {

/// The noise of one tile: one byte for each of its elements.
class TileNoise {
 public:
  __device__ TileNoise(math::HashKey key, std::int64_t tile)
      : key_(key.for_upper(static_cast<std::uint32_t>(tile * kWords >> 32))),
        start_(math::hash_start(key_, static_cast<std::uint32_t>(tile) * kWords)) {}

  /// The noise of elements 4 * quad to 4 * quad + 3 of the tile.
  [[nodiscard]] __device__ std::uint32_t of_quad(std::uint32_t quad) const {
    return math::hash_finish(key_, start_ ^ quad);
  }

 private:
  static constexpr std::uint32_t kWords = kTile / 4;
  math::HashKey key_;
  std::uint32_t start_;
};

/// The codes of four elements, one byte each. Two elements share a word while the noise is added: bytes 0 and 2 of the
/// noise go to the even elements, 1 and 3 to the odd ones.
template <bool Noisy>
[[nodiscard]] __device__ __forceinline__ std::uint32_t four_codes(const std::uint32_t (&steps)[4],
                                                                  std::uint32_t noise) {
  std::uint32_t even = __byte_perm(steps[0], steps[2], 0x5410);
  std::uint32_t odd = __byte_perm(steps[1], steps[3], 0x5410);
  if constexpr (!Noisy) return __byte_perm(even, odd, 0x6240);
  even += __byte_perm(noise, 0, 0x4240);
  odd += __byte_perm(noise, 0, 0x4341);
  return __byte_perm(even, odd, 0x7351);
}

/// Byte `n` of `noise`, and above it byte `c` of `codes`. That byte is below 128, so its sign bit, 0, fills the rest.
__device__ __forceinline__ std::uint32_t code_above_noise(std::uint32_t codes, int c, std::uint32_t noise, int n) {
  std::uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(codes), "r"(noise), "r"(0x8804 + 0x1110 * c + n));
  return result;
}

/// The first `Count` codes in the form that affine_value() expects.
template <int Bits, bool Dithered, int Count>
__device__ __forceinline__ void code_numbers(std::uint64_t packed, const std::uint32_t (&noise)[Count / 4],
                                             std::uint32_t (&numbers)[Count]) {
  if constexpr (Dithered && Bits < 8) {
    // One byte permute joins code and noise. The noise is inverted because it is subtracted. The factor is opaque
    // because a shift would use the pipe that is the busiest already.
    const std::uint32_t two = opaque(2U);
    const CodeBytes<Bits> codes(packed);
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      const std::uint32_t both = code_above_noise(codes.word(i), codes.byte(i), ~noise[i / 4], i % 4);
      numbers[i] = both * two + (math::kAffineZero - 255U);
    }
  } else if constexpr (Bits <= 4) {
    // Codes are masked at the bit where they are needed, without being moved to bit 0 first.
    const std::uint32_t zero = opaque(math::kAffineZero);
    const auto codes = static_cast<std::uint32_t>(packed);
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      constexpr int kAt = math::kAffineValueBit;
      const std::uint32_t moved = kAt >= i * Bits ? codes << (kAt - i * Bits) : codes >> (i * Bits - kAt);
      numbers[i] = (moved & format::kMaxCode<Bits> << kAt) | zero;
    }
  } else {
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      const std::uint32_t own = Dithered ? noise[i / 4] >> (i % 4 * 8) & 255U : 0U;
      numbers[i] = math::affine_number<Dithered>(format::unpack<Bits>(packed, i), own);
    }
  }
}

}  // namespace actzip::cuda
