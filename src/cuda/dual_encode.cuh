// What the kernels that encode `dual` share: the codes of a chunk, and what threads exchange through shared memory.
#pragma once

#include <climits>
#include <cstdint>

#include "cuda/dual_buffer.cuh"
#include "cuda/dual_measure.cuh"
#include "cuda/segment_bits.cuh"
#include "cuda/uniform.cuh"
#include "math/dual.hpp"

namespace actzip::cuda {

/// One map's numbers in shared memory: first the extremes of its residuals as order_key(), then what its codes refer
/// to.
struct SharedRange {
  int least;
  int negated_most;
  float min;
  float inverse;

  __device__ void clear() { least = negated_most = INT_MAX; }

  [[nodiscard]] __device__ math::AffineGroup group(int bits) const {
    return math::dual_group(math::affine_inverse_levels(bits), key_value(least), -key_value(negated_most));
  }

  /// Stores the statistics of the map. Called by one thread, once the extremes are known.
  __device__ void finish(const DualBuffer& dst, std::int64_t map, int bits) {
    const math::AffineGroup own = group(bits);
    store_stats(dst.stats, map, StatsType::bf16, {own.min, own.step});
    min = own.min;
    inverse = own.inverse;
  }
};

/// Writes zeros behind the byte of the last code, up to a whole word.
__device__ __forceinline__ void zero_last_codes(const DualBuffer& dst, int bits) {
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  constexpr std::int64_t kBitsOfByte = 8;
  const std::int64_t used = format::ceil_div(dst.layout.elems * bits, kBitsOfByte);
  for (std::int64_t at = used; at < dst.codes_bytes; ++at) dst.codes[at] = std::byte{0};
}

/// The extremes of eight neighbouring elements, each on its own.
template <DType Type>
class NeighbourExtremes {
  using Packed = std::conditional_t<Type == DType::bf16, __nv_bfloat162, __half2>;
  static constexpr std::uint32_t kPairOfInfinities = (Type == DType::bf16 ? 0x7f80U : 0x7c00U) * 0x10001U;

 public:
  __device__ NeighbourExtremes() {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      least_.w[k] = kPairOfInfinities;
      most_.w[k] = kPairOfInfinities | 0x80008000U;
    }
  }
  __device__ void take(const Chunk<std::uint16_t>& chunk) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const auto pair = as_packed<Packed>(chunk.w[k]);
      least_.w[k] = as_word(__hmin2(as_packed<Packed>(least_.w[k]), pair));
      most_.w[k] = as_word(__hmax2(as_packed<Packed>(most_.w[k]), pair));
    }
  }
  [[nodiscard]] __device__ float least(int i) const { return widen<Type>(least_, i); }
  [[nodiscard]] __device__ float most(int i) const { return widen<Type>(most_, i); }

 private:
  Chunk<std::uint16_t> least_;
  Chunk<std::uint16_t> most_;
};

template <>
class NeighbourExtremes<DType::f32> {
 public:
  __device__ NeighbourExtremes() {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      least_[i] = kInfinity;
      most_[i] = -kInfinity;
    }
  }
  __device__ void take(const Chunk<float>& chunk) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      least_[i] = fminf(least_[i], math::float_of(chunk.w[i]));
      most_[i] = fmaxf(most_[i], math::float_of(chunk.w[i]));
    }
  }
  [[nodiscard]] __device__ float least(int i) const { return least_[i]; }
  [[nodiscard]] __device__ float most(int i) const { return most_[i]; }

 private:
  float least_[kChunk];
  float most_[kChunk];
};

inline constexpr std::uint32_t kEdge = 8;  ///< positions of a block along each dimension

/// Calls body(r) for the rows of a block, of which `rows` exist: unrolled, so that they may lie in registers, or as a
/// loop.
template <bool InRegisters, class Body>
__device__ __forceinline__ void for_each_row(std::uint32_t rows, Body body) {
  if constexpr (InRegisters) {
#pragma unroll
    for (std::uint32_t r = 0; r < kEdge; ++r) {
      if (r >= rows) break;
      body(r);
    }
  } else {
#pragma unroll 2
    for (std::uint32_t r = 0; r < rows; ++r) body(r);
  }
}

/// Sum and extremes of a block of 8 x 8, of which `rows` and `columns` exist; the values of the others do not matter.
/// row(r) returns row `r`.
template <DType Type, bool InRegisters, class Row>
[[nodiscard]] __device__ __forceinline__ BlockSums measure_block(std::uint32_t rows, std::uint32_t columns, Row row) {
  float sums[kChunk] = {};
  NeighbourExtremes<Type> extremes;
  for_each_row<InRegisters>(rows, [&](std::uint32_t r) {
    const Chunk<Storage<Type>> own = row(r);
    extremes.take(own);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sums[i] += widen<Type>(own, i);
  });
  BlockSums found;
#pragma unroll
  for (std::uint32_t i = 0; i < kEdge; ++i) {
    if (i >= columns) {
      sums[i] = 0.0F;
    } else {
      found.least = fminf(found.least, extremes.least(i));
      found.negated_most = fminf(found.negated_most, -extremes.most(i));
    }
  }
  found.sum = sum_of_neighbours(sums);
  return found;
}

/// Sets a block of an unrepresentable map to zeros, with its average and group, so that its codes become 0.
template <class MapChunk>
__device__ __forceinline__ void clear_void(MapChunk (&rows)[kEdge], float& average, math::AffineGroup& group) {
  if (!math::is_nan(group.min)) return;
#pragma unroll
  for (MapChunk& row : rows) row = {};
  average = 0.0F;
  group = {};
}

/// The average and group for each element of a chunk; each element may belong to another map.
struct ChunkGroups {
  float average[kChunk];
  math::AffineGroup group[kChunk];     ///< only min and inverse are set
  std::uint32_t keep[2] = {~0U, ~0U};  ///< one byte per element: 0 if its code has to be 0

  __device__ void set(int i, float own_average, float min, float inverse) {
    average[i] = own_average;
    group[i].min = min;
    group[i].inverse = inverse;
    // Elements of unrepresentable maps have codes 0.
    if (math::is_nan(min)) keep[i / 4] &= ~(255U << (i % 4 * 8));
  }
};

/// Writes the codes of a chunk that starts at element `first` and has `count` elements. step(i) returns affine_steps()
/// of element `i`.
template <int Bits, class Step>
__device__ __forceinline__ void encode_steps(const DualBuffer& dst, int bits, math::HashKey seed_key,
                                             std::int64_t first, int count, Step step) {
  // Unsigned, because dividing signed numbers takes three more instructions.
  const auto number = static_cast<std::uint64_t>(first);
  const std::uint64_t counter = number / 4;
  const math::HashKey key = seed_key.for_upper(static_cast<std::uint32_t>(counter >> 32));
  const std::uint32_t start = math::hash_start(key, static_cast<std::uint32_t>(counter));
  std::uint32_t quads[2];
#pragma unroll
  for (std::uint32_t q = 0; q < 2; ++q) {
    const int i = static_cast<int>(4 * q);
    const std::uint32_t steps[4] = {step(i), step(i + 1), step(i + 2), step(i + 3)};
    quads[q] = four_codes<true>(steps, math::hash_finish(key, start ^ q));
  }
  with_width<Bits, Dual::kMostBits>(bits, [&]<int Width>() {
    const auto at = static_cast<std::int64_t>(number / kChunk * Width);
    std::uint64_t packed = pack_bytes<Width>(quads[0], quads[1]);
    if (count < kChunk) packed &= (std::uint64_t{1} << (count * Width)) - 1;
    store_codes<Width>(dst.codes + at, packed, count < kChunk ? dst.codes_bytes - at : Width);
  });
}

/// The same for codes of 2 bits, four of which fill a byte: `first` is a multiple of 4, and `count` is 4 or 8.
template <class Step>
__device__ __forceinline__ void encode_quads(const DualBuffer& dst, math::HashKey seed_key, std::int64_t first,
                                             std::uint32_t count, Step step) {
  const std::uint64_t counter = static_cast<std::uint64_t>(first) / 4;
  const auto encode_quad = [&](int q) {
    const std::uint32_t steps[4] = {step(4 * q), step(4 * q + 1), step(4 * q + 2), step(4 * q + 3)};
    const std::uint32_t codes = four_codes<true>(steps, math::hash_word64(seed_key, counter + q));
    dst.codes[counter + q] = static_cast<std::byte>(pack_bytes<2>(codes, codes));
  };
  encode_quad(0);
  if (count > 4) encode_quad(1);
}

/// Like encode_steps(), from elements and the numbers that they are coded with.
template <DType Type, int Bits>
__device__ __forceinline__ void encode_chunk(const Chunk<Storage<Type>>& chunk, const DualBuffer& dst, int bits,
                                             math::HashKey seed_key, std::int64_t first, int count,
                                             const ChunkGroups& groups) {
  encode_steps<Bits>(dst, bits, seed_key, first, count, [&](int i) {
    const std::uint32_t steps = math::affine_steps<true>(widen<Type>(chunk, i) - groups.average[i], groups.group[i]);
    // Rare, but necessary: two elements share a word later, and a NaN must not affect the other one.
    return groups.keep[i / 4] == ~0U ? steps : steps & (0U - (groups.keep[i / 4] >> (i % 4 * 8) & 1U));
  });
}

}  // namespace actzip::cuda
