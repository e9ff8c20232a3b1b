// The steps of decoding `rotated`.
#pragma once

#include <cstdint>

#include "cuda/chunk.cuh"
#include "cuda/hadamard.cuh"
#include "cuda/rotated_tile.cuh"
#include "cuda/segment_bits.cuh"
#include "cuda/values.cuh"

namespace actzip::cuda {

/// Codes as levels with their signs, in f16: a table look-up by byte permutes, four codes at a time.
template <int Bits>
class LevelTable {
 public:
  __device__ LevelTable() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      low_[half] = opaque(bytes(4 * half, 0));
      high_[half] = opaque(bytes(4 * half, 8));
    }
  }

  /// For tables whose width is only known when they run: see below.
  __device__ void choose(int /*bits*/) {}

  __device__ void expand(std::uint32_t packed, std::uint32_t (&words)[4]) const {
    const std::uint32_t nibbles = spread(packed);
#pragma unroll
    for (int quad = 0; quad < 2; ++quad) {
      const std::uint32_t select = nibbles >> (16 * quad);
      const std::uint32_t entries = Bits < 4 ? select : select & 0x7777U;
      const std::uint32_t low = __byte_perm(low_[0], low_[1], entries);
      std::uint32_t high = __byte_perm(high_[0], high_[1], entries);
      if constexpr (Bits == 4) {  // eight entries hold the magnitudes only
        high ^=
            ((select & 0x8U) << 4) | ((select & 0x80U) << 8) | ((select & 0x800U) << 12) | ((select & 0x8000U) << 16);
      }
      words[2 * quad] = __byte_perm(low, high, 0x5140);
      words[2 * quad + 1] = __byte_perm(low, high, 0x7362);
    }
  }

 private:
  /// Bits of table entry `i`: codes in order, or for 4 bits the magnitudes.
  __device__ static constexpr std::uint32_t entry(int i) {
    constexpr int kCount = math::kLevelCount<Bits>;
    const float level = math::level<Bits>(i % kCount);
    const std::uint32_t bits = math::f32_to_f16(level);
    return Bits < 4 && (i / kCount) % 2 == 1 ? bits | 0x8000U : bits;
  }
  /// Bytes of four entries, from bit `shift` of each.
  __device__ static constexpr std::uint32_t bytes(int first, int shift) {
    std::uint32_t result = 0;
    for (int i = 0; i < 4; ++i) result |= ((entry(first + i) >> shift) & 0xffU) << (8 * i);
    return result;
  }
  /// Eight codes, one in each nibble: the upper half of 8, then of 4, then of 2 codes moves to where it belongs.
  __device__ static std::uint32_t spread(std::uint32_t codes) {
    if constexpr (Bits == 4) return codes;
    codes = part<4>(codes, 0x00000001U);
    codes = part<2>(codes, 0x00010001U);
    return part<1>(codes, 0x01010101U);
  }
  template <int Codes>
  __device__ static std::uint32_t part(std::uint32_t codes, std::uint32_t fields) {
    const std::uint32_t lower = fields * ((1U << (Codes * Bits)) - 1U);
    if constexpr (Bits <= 2) return join_bits(codes, codes << ((4 - Bits) * Codes), lower | lower << (4 * Codes));
    return (codes & lower) | ((codes << ((4 - Bits) * Codes)) & (lower << (4 * Codes)));
  }

  std::uint32_t low_[2];
  std::uint32_t high_[2];
};

/// The table of the width that was chosen last; a lane that has no codes chooses 0.
template <>
class LevelTable<kOwnBits> {
 public:
  __device__ void choose(int bits) { bits_ = bits; }

  __device__ void expand(std::uint32_t packed, std::uint32_t (&words)[4]) const {
#pragma unroll
    for (std::uint32_t& word : words) word = 0;
    with_width<kOwnBits, format::kMaxRotatedBits>(bits_, [&]<int Width>() {
      const LevelTable<Width> table;
      table.expand(packed, words);
    });
  }

 private:
  int bits_ = 0;
};

/// What is kept of one block.
struct EncodedChunk {
  std::uint32_t codes;
  Stats stats;
};

/// D1 H D2 H of the levels of one block, as pairs of f16 numbers in spatial layout.
template <int Bits>
__device__ __forceinline__ void rotate_back(std::uint32_t codes, int block, const LevelTable<Bits>& table,
                                            const Rotation<HalfHadamard>& rotation, std::uint32_t (&pairs)[4]) {
  table.expand(codes, pairs);
  rotation.hadamard.forward(pairs);
#pragma unroll
  for (int k = 0; k < 4; ++k) pairs[k] = flip_pair(pairs[k], rotation.second.of_pair(block, k));
  rotation.hadamard.backward(pairs);
#pragma unroll
  for (int k = 0; k < 4; ++k) pairs[k] = flip_pair(pairs[k], rotation.first.of_pair(block, k));
}

/// Eight elements of one block, decoded into registers in spatial layout, if their group is not NaN. All lanes take
/// part.
template <DType Type, int Bits>
[[nodiscard]] __device__ __forceinline__ Chunk<Storage<Type>> rotated_decode_chunk(
    const EncodedChunk& in, int block, const LevelTable<Bits>& table, const Rotation<HalfHadamard>& rotation) {
  std::uint32_t pairs[4];
  rotate_back<Bits>(in.codes, block, table, rotation, pairs);
  float values[kChunk];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const float2 pair = __half22float2(as_packed<__half2>(pairs[k]));
    values[2 * k] = fmaf(pair.x, in.stats.second, in.stats.first);
    values[2 * k + 1] = fmaf(pair.y, in.stats.second, in.stats.first);
  }
  Chunk<Storage<Type>> chunk;
  narrow<Type>(values, chunk.w);
  return chunk;
}

/// Sets the elements whose bit of `mask` is 0 to 0.
template <DType Type>
__device__ __forceinline__ void keep_masked(Chunk<Storage<Type>>& chunk, std::uint32_t mask) {
  if constexpr (Type == DType::f32) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) chunk.w[i] &= 0U - ((mask >> i) & 1U);
  } else {
    const std::uint32_t apart = mask | mask << 15;  // the bits of a pair 16 apart; the product makes them as wide as it
#pragma unroll
    for (int k = 0; k < 4; ++k) chunk.w[k] &= ((apart >> 2 * k) & 0x00010001U) * 0xffffU;
  }
}

}  // namespace actzip::cuda
