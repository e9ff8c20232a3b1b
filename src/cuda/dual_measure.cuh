// Computes averages of blocks and statistics of maps in one pass over the elements. Sums run down the columns of a
// block, then over neighbouring columns: see format.md, section 9.
#pragma once

#include <climits>
#include <cstdint>

#include "cuda/dual_buffer.cuh"
#include "math/dual.hpp"

namespace actzip::cuda {

inline constexpr int kMeasureThreads = 256;

inline constexpr float kInfinity = __builtin_inff();

/// A sum, and the extremes as minima. Initially those of no elements.
struct BlockSums {
  float sum = 0.0F;
  float least = kInfinity;
  float negated_most = kInfinity;

  /// Extremes may ignore a NaN, because the sum does not.
  __device__ void take(float x) {
    sum += x;
    least = fminf(least, x);
    negated_most = fminf(negated_most, -x);
  }
  __device__ void join(const BlockSums& other) {
    sum += other.sum;
    least = fminf(least, other.least);
    negated_most = fminf(negated_most, other.negated_most);
  }
};

/// The positions of a block: where it begins, and how many there are along each dimension.
struct BlockPlace {
  std::uint32_t slice, row, column;
  std::uint32_t slices, rows, columns;

  __device__ BlockPlace(const DualBuffer& buffer, std::uint32_t block) {
    const std::uint32_t rest = buffer.by_block_columns(block);
    const std::uint32_t above = buffer.depth > 1 ? buffer.by_block_rows(rest) : 0;
    slice = above << buffer.shift;
    row = (rest - above * buffer.block_rows) << buffer.shift;
    column = (block - rest * buffer.block_columns) << buffer.shift;
    const std::uint32_t edge = 1U << buffer.shift;
    slices = min(edge, buffer.depth - slice);
    rows = min(edge, buffer.height - row);
    columns = min(edge, buffer.width - column);
  }

  /// Number of elements that the block has in a map of which `present` positions exist.
  [[nodiscard]] __device__ float count(const DualBuffer& buffer, std::uint32_t block, std::uint32_t present) const {
    if (present == buffer.positions) return static_cast<float>(slices * rows * columns);
    return static_cast<float>(format::block_count(buffer.layout, format::block_box(buffer.layout, block), present));
  }
};

__device__ __forceinline__ void store_average(const DualBuffer& dst, std::int64_t at, float average) {
  dst.averages[at] = static_cast<std::uint16_t>(math::bits_of(average) >> 16);
}

/// The sum of eight neighbours, in which adjacent ones are added first.
__device__ __forceinline__ float sum_of_neighbours(const float (&x)[kChunk]) {
  return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

/// Stores the average of a block and turns its extremes into those of the residuals, which are NaN if the average is
/// unusable. A block without elements leaves them at +inf.
__device__ __forceinline__ void finish_block(const DualBuffer& dst, std::int64_t average_at, BlockSums& sums,
                                             float count) {
  const float average = math::dual_average(sums.sum, count);
  store_average(dst, average_at, average);
  if (count == 0.0F) return;
  sums.least = math::dual_residual(sums.least, average);
  sums.negated_most = -math::dual_residual(-sums.negated_most, average);
}

__device__ __forceinline__ void store_map(const DualBuffer& dst, std::int64_t map, int bits, float least,
                                          float negated_most) {
  const math::AffineGroup group = math::dual_group(math::affine_inverse_levels(bits), least, -negated_most);
  store_stats(dst.stats, map, StatsType::bf16, {group.min, group.step});
}

/// An integer that sorts like the floating number; a NaN comes before all others.
__device__ __forceinline__ int order_key(float x) {
  const int bits = static_cast<int>(math::bits_of(x));
  return math::is_nan(x) ? INT_MIN : bits ^ (bits >> 31 & INT_MAX);
}
__device__ __forceinline__ float key_value(int key) {
  const int bits = key ^ (key >> 31 & INT_MAX);
  return math::float_of(key == INT_MIN ? math::kNanF32 : static_cast<std::uint32_t>(bits));
}

/// The most maps that a thread block measures if channels do not lie last.
inline constexpr int kMostMaps = 256;

/// The extremes of the maps' residuals, as order_key().
struct MapExtremes {
  int least[kMostMaps];
  int negated_most[kMostMaps];
};

/// Number of rows whose elements are loaded before the first one is needed.
inline constexpr std::uint32_t kRowsAhead = 8;

/// Measures one column of a block. at(position) returns an element; `present` of them exist.
template <DType Type, class At>
__device__ __forceinline__ BlockSums measure_column(const DualBuffer& buffer, const BlockPlace& place,
                                                    std::uint32_t column, std::uint32_t present, At at) {
  BlockSums sums;
  for (std::uint32_t slice = 0; slice < place.slices; ++slice) {
    for (std::uint32_t row = 0; row < place.rows; row += kRowsAhead) {
      const std::uint32_t line = (place.slice + slice) * buffer.height + place.row + row;
      const std::uint32_t position = line * buffer.width + place.column + column;
      Storage<Type> elements[kRowsAhead] = {};
      bool exist[kRowsAhead];
#pragma unroll
      for (std::uint32_t k = 0; k < kRowsAhead; ++k) {
        exist[k] = row + k < place.rows && position + k * buffer.width < present;
        if (exist[k]) elements[k] = at(position + k * buffer.width);
      }
#pragma unroll
      for (std::uint32_t k = 0; k < kRowsAhead; ++k) {
        if (exist[k]) sums.take(widen_one<Type>(elements[k]));
      }
    }
  }
  return sums;
}

/// Writes the averages and statistics of `maps` maps from `first_map` on, with all `Threads` threads of a block. A
/// block of positions is measured by as many lanes as it has columns, one lane per column. at(map, position) returns an
/// element. All threads meet at the end.
template <DType Type, int Threads, class At>
__device__ __forceinline__ void measure_maps(const DualBuffer& dst, int bits, std::int64_t first_map,
                                             std::uint32_t maps, MapExtremes& extremes, At at) {
  for (std::uint32_t m = threadIdx.x; m < maps; m += Threads) {
    extremes.least[m] = extremes.negated_most[m] = order_key(kInfinity);
  }
  __syncthreads();
  const std::uint32_t lanes = 1U << dst.shift;
  const std::uint32_t column = threadIdx.x & (lanes - 1);
  const std::uint32_t blocks = maps * dst.blocks;
  const std::uint32_t step = Threads >> dst.shift;
  // All lanes of a warp stay in the loop to the end, because they exchange numbers.
  for (std::uint32_t round = 0; round < blocks; round += step) {
    const std::uint32_t task = round + (threadIdx.x >> dst.shift);
    const bool exists = task < blocks;
    const std::uint32_t map = exists ? dst.by_blocks(task) : 0;
    const std::uint32_t block = exists ? task - map * dst.blocks : 0;
    const std::int64_t left = dst.layout.elems - (first_map + map) * dst.positions;
    const std::uint32_t present = left < dst.positions ? static_cast<std::uint32_t>(left) : dst.positions;
    const BlockPlace place(dst, block);
    BlockSums sums;
    if (exists && column < place.columns) {
      sums =
          measure_column<Type>(dst, place, column, present, [&](std::uint32_t position) { return at(map, position); });
    }
    for (std::uint32_t distance = 1; distance < lanes; distance *= 2) {
      sums.join({__shfl_xor_sync(~0U, sums.sum, distance), __shfl_xor_sync(~0U, sums.least, distance),
                 __shfl_xor_sync(~0U, sums.negated_most, distance)});
    }
    if (!exists || column != 0) continue;
    finish_block(dst, dst.average_index(first_map + map, block, 0), sums, place.count(dst, block, present));
    atomicMin(&extremes.least[map], order_key(sums.least));
    atomicMin(&extremes.negated_most[map], order_key(sums.negated_most));
  }
  __syncthreads();
  for (std::uint32_t m = threadIdx.x; m < maps; m += Threads) {
    store_map(dst, first_map + m, bits, key_value(extremes.least[m]), key_value(extremes.negated_most[m]));
  }
  __syncthreads();
}

/// Measures maps of any size that lie one behind the other; a thread block measures `maps` of them.
template <DType Type, class Access>
__global__ void __launch_bounds__(kMeasureThreads)
    dual_measure_kernel(const __grid_constant__ Access src, const __grid_constant__ DualBuffer dst, int bits,
                        std::uint32_t maps) {
  __shared__ MapExtremes extremes;
  const std::int64_t first_map = static_cast<std::int64_t>(blockIdx.x) * maps;
  const auto own = static_cast<std::uint32_t>(min(static_cast<std::int64_t>(maps), dst.layout.samples - first_map));
  measure_maps<Type, kMeasureThreads>(dst, bits, first_map, own, extremes, [&](std::uint32_t map, std::uint32_t at) {
    return src.at((first_map + map) * dst.positions + at);
  });
}

/// Number of columns whose sums a lane holds at once.
inline constexpr std::uint32_t kStrip = 8;

/// The joined sums of up to kStrip columns of one channel, starting at column `first` of the block.
template <DType Type, class Access>
__device__ __forceinline__ BlockSums measure_strip(const Access& src, const DualBuffer& buffer, const BlockPlace& place,
                                                   std::uint32_t first, std::int64_t origin, std::uint32_t present) {
  BlockSums columns[kStrip];
  for (std::uint32_t slice = 0; slice < place.slices; ++slice) {
    for (std::uint32_t row = 0; row < place.rows; ++row) {
      const std::uint32_t line = (place.slice + slice) * buffer.height + place.row + row;
      const std::uint32_t position = line * buffer.width + place.column + first;
      const std::int64_t element = origin + static_cast<std::int64_t>(position) * buffer.channels;
      Storage<Type> elements[kStrip] = {};
      bool exist[kStrip];
#pragma unroll
      for (std::uint32_t k = 0; k < kStrip; ++k) {
        exist[k] = first + k < place.columns && position + k < present;
        if (exist[k]) elements[k] = src.at(element + static_cast<std::int64_t>(k) * buffer.channels);
      }
#pragma unroll
      for (std::uint32_t k = 0; k < kStrip; ++k) {
        if (exist[k]) columns[k].take(widen_one<Type>(elements[k]));
      }
    }
  }
#pragma unroll
  for (std::uint32_t distance = 1; distance < kStrip; distance *= 2) {
#pragma unroll
    for (std::uint32_t k = 0; k < kStrip; k += 2 * distance) columns[k].join(columns[k + distance]);
  }
  return columns[0];
}

/// Measures maps whose channels lie last. A lane measures one channel, a warp the blocks of 32 channels in turn with
/// the other warps, and a thread block all blocks of 32 channels of one sample.
template <DType Type, class Access>
__global__ void __launch_bounds__(kMeasureThreads)
    dual_measure_channels_kernel(const __grid_constant__ Access src, const __grid_constant__ DualBuffer dst, int bits,
                                 std::uint32_t channel_tiles) {
  __shared__ float shared_least[kMeasureThreads];
  __shared__ float shared_most[kMeasureThreads];
  const std::uint32_t sample = blockIdx.x / channel_tiles;
  const std::uint32_t channel = (blockIdx.x - sample * channel_tiles) * kWarp + threadIdx.x % kWarp;
  float least = kInfinity;
  float negated_most = kInfinity;
  if (channel < dst.channels) {
    const std::int64_t origin = sample * dst.layout.positions * dst.channels + channel;
    const auto present = static_cast<std::uint32_t>(dst.layout.present(sample, channel));
    for (std::uint32_t block = threadIdx.x / kWarp; block < dst.blocks; block += blockDim.x / kWarp) {
      const BlockPlace place(dst, block);
      BlockSums sums = measure_strip<Type>(src, dst, place, 0, origin, present);
      // Wider blocks have several strips, which are joined like columns.
      if (dst.shift > 3) sums.join(measure_strip<Type>(src, dst, place, kStrip, origin, present));
      if (dst.shift > 4) {
        BlockSums right = measure_strip<Type>(src, dst, place, 2 * kStrip, origin, present);
        right.join(measure_strip<Type>(src, dst, place, 3 * kStrip, origin, present));
        sums.join(right);
      }
      finish_block(dst, dst.average_index(sample, block, channel), sums, place.count(dst, block, present));
      least = min_nan(least, sums.least);
      negated_most = min_nan(negated_most, sums.negated_most);
    }
  }
  shared_least[threadIdx.x] = least;
  shared_most[threadIdx.x] = negated_most;
  __syncthreads();
  if (threadIdx.x >= kWarp || channel >= dst.channels) return;
  for (std::uint32_t other = threadIdx.x + kWarp; other < blockDim.x; other += kWarp) {
    least = min_nan(least, shared_least[other]);
    negated_most = min_nan(negated_most, shared_most[other]);
  }
  store_map(dst, static_cast<std::int64_t>(sample) * dst.channels + channel, bits, least, negated_most);
}

}  // namespace actzip::cuda
