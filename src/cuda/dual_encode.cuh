// What the kernels that encode `dual` share: codes of a chunk, and what the lanes of a thread block tell each other.
#pragma once

#include <climits>
#include <cstdint>

#include "cuda/dual_buffer.cuh"
#include "cuda/dual_measure.cuh"
#include "cuda/levels.cuh"
#include "cuda/segment_bits.cuh"
#include "math/dual.hpp"

namespace actzip::cuda {

/// Of one map, in shared memory: the extremes of its residuals as order_key(), then what its codes are relative to.
struct SharedLevels {
  int least;
  int negated_most;
  float min;
  float inverse;

  __device__ void clear() { least = negated_most = INT_MAX; }

  [[nodiscard]] __device__ math::AffineGroup group(int bits) const {
    return math::dual_group(math::affine_inverse_levels(bits), key_value(least), -key_value(negated_most));
  }

  /// Once the extremes are known, by one thread: stores the statistics of the map.
  __device__ void finish(const DualBuffer& dst, std::int64_t map, int bits) {
    const math::AffineGroup own = group(bits);
    store_stats(dst.stats, map, StatsType::bf16, {own.min, own.step});
    min = own.min;
    inverse = own.inverse;
  }
};

/// Zeros behind the last chunk, up to a whole word.
__device__ __forceinline__ void zero_last_codes(const DualBuffer& dst, int bits) {
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  const std::int64_t chunks = format::ceil_div(dst.layout.elems, std::int64_t{kChunk});
  for (std::int64_t at = chunks * bits; at < dst.codes_bytes; ++at) dst.codes[at] = std::byte{0};
}

/// What the elements of a chunk are coded against; each may belong to another map.
struct ChunkGroups {
  float average[kChunk];
  math::AffineGroup group[kChunk];     ///< min and inverse alone are set
  std::uint32_t keep[2] = {~0U, ~0U};  ///< bytes of elements whose codes are not to be 0

  __device__ void set(int i, float own_average, float min, float inverse) {
    average[i] = own_average;
    group[i].min = min;
    group[i].inverse = inverse;
    // What cannot be represented has codes 0.
    if (math::is_nan(min)) keep[i / 4] &= ~(255U << (i % 4 * 8));
  }
};

/// Codes of a chunk of which `count` elements exist, from number `first` on.
template <DType Type, int Bits>
__device__ __forceinline__ void encode_chunk(const Chunk<Storage<Type>>& chunk, const DualBuffer& dst, int bits,
                                             math::HashKey seed_key, std::int64_t first, int count,
                                             const ChunkGroups& groups) {
  const std::int64_t counter = first / 4;
  const math::HashKey key = seed_key.for_upper(static_cast<std::uint32_t>(counter >> 32));
  const std::uint32_t start = math::hash_start(key, static_cast<std::uint32_t>(counter));
  std::uint32_t quads[2];
#pragma unroll
  for (std::uint32_t q = 0; q < 2; ++q) {
    std::uint32_t steps[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i = static_cast<int>(4 * q) + k;
      steps[k] = math::affine_steps<true>(widen<Type>(chunk, i) - groups.average[i], groups.group[i]);
    }
    if (groups.keep[q] != ~0U) {  // rarely: two elements share a word, and a NaN must not reach the other
#pragma unroll
      for (int k = 0; k < 4; ++k) steps[k] &= 0U - (groups.keep[q] >> (8 * k) & 1U);
    }
    quads[q] = four_codes<true>(steps, math::hash_finish(key, start ^ q));
  }
  with_width<Bits, format::kMaxBits>(bits, [&]<int Width>() {
    const std::int64_t at = first / kChunk * Width;
    std::uint64_t packed = pack_bytes<Width>(quads[0], quads[1]);
    if (count < kChunk) packed &= (std::uint64_t{1} << (count * Width)) - 1;
    store_codes<Width>(dst.codes + at, packed, count < kChunk ? dst.codes_bytes - at : Width);
  });
}

}  // namespace actzip::cuda
