// The steps of decoding `rotated`.
#pragma once

#include <cstdint>

#include "cuda/chunk.cuh"
#include "cuda/hadamard.cuh"
#include "cuda/level_table.cuh"
#include "cuda/rotated_tile.cuh"
#include "cuda/values.cuh"

namespace actzip::cuda {

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
