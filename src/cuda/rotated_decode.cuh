// The steps of decoding `rotated`.
#pragma once

#include <cstdint>

#include "cuda/chunk.cuh"
#include "cuda/hadamard.cuh"
#include "cuda/level_table.cuh"
#include "cuda/rotated_tile.cuh"
#include "cuda/values.cuh"

namespace actzip::cuda {

/// What a buffer stores for a lane's elements of one block.
template <int Bits>
struct EncodedChunk {
  EightCodes<Bits> codes;
  Stats stats;
};

/// Computes D1 H D2 H of the levels of one block, as pairs of f16 numbers in spatial layout.
template <int Bits>
__device__ __forceinline__ void rotate_back(EightCodes<Bits> codes, int block, const LevelTable<Bits>& table,
                                            const Rotation<HalfHadamard>& rotation, std::uint32_t (&pairs)[4]) {
  table.expand(codes, pairs);
  rotation.hadamard.forward(pairs);
#pragma unroll
  for (int k = 0; k < 4; ++k) pairs[k] = flip_pair(pairs[k], rotation.second.of_pair(block, k));
  rotation.hadamard.backward(pairs);
#pragma unroll
  for (int k = 0; k < 4; ++k) pairs[k] = flip_pair(pairs[k], rotation.first.of_pair(block, k));
}

/// Decodes eight elements of one block into registers, in spatial layout. The result is undefined if their group is
/// NaN. All lanes take part.
template <DType Type, int Bits>
[[nodiscard]] __device__ __forceinline__ Chunk<Storage<Type>> rotated_decode_chunk(
    const EncodedChunk<Bits>& in, int block, const LevelTable<Bits>& table, const Rotation<HalfHadamard>& rotation) {
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

}  // namespace actzip::cuda
