// Encodes `dual` with one block of 8 x 8 positions per lane: averages need no exchange between lanes, and places are
// counted along instead of computed. One launch. There are two kernels, because elements of a block are neighbours
// along a row in one memory format and along the channels in the other.
#pragma once

#include <climits>
#include <cstdint>

#include "cuda/dual_encode.cuh"

namespace actzip::cuda {

inline constexpr int kMostBlockThreads = 512;
inline constexpr int kChannelThreads = 256;

/// The number of this thread. Thread blocks are kThreads wide, and as high as necessary.
__device__ __forceinline__ std::uint32_t thread_number() { return threadIdx.y * kThreads + threadIdx.x; }

/// Joins the extremes of a lane's residuals with those of its map. In most warps all lanes have the same map.
__device__ __forceinline__ void join_extremes(SharedRange* ranges, std::uint32_t map, bool exists, float least,
                                              float negated_most) {
  int low = exists ? order_key(least) : INT_MAX;
  int high = exists ? order_key(negated_most) : INT_MAX;
  const std::uint32_t first = __shfl_sync(~0U, map, 0);
  if (__all_sync(~0U, !exists || map == first) != 0) {
    low = __reduce_min_sync(~0U, low);
    high = __reduce_min_sync(~0U, high);
    exists = exists && threadIdx.x % kWarp == 0;
  }
  if (!exists) return;
  atomicMin(&ranges[map].least, low);
  atomicMin(&ranges[map].negated_most, high);
}

/// How a thread block distributes its maps. Lanes take the first line of blocks of all maps, then the second line, and
/// so on. The last line, which may have fewer rows, then fills warps of its own, which finish sooner.
struct MapLanes {
  std::uint32_t maps;
  Divisor by_maps;

  explicit MapLanes(std::int64_t maps) : maps(static_cast<std::uint32_t>(maps)), by_maps(maps) {}
};

/// Encodes maps that lie one behind the other, with a depth of 1 and a width that is a multiple of `Run`: 8, or with 2
/// bits also 4. A lane keeps its block in registers, so the launch bounds leave room for one thread block per
/// multiprocessor with f32 elements and for two with 16-bit ones.
template <DType Type, int Bits, int Run>
__global__ void __launch_bounds__(kMostBlockThreads, 4 / sizeof(Storage<Type>))
    dual_encode_maps_kernel(const __grid_constant__ DenseAccess<Storage<Type>> src,
                            const __grid_constant__ DualBuffer dst, int bits, const __grid_constant__ MapLanes lanes,
                            const __grid_constant__ KernelSeed seed, const __grid_constant__ Padding padding) {
  static_assert(Run == kChunk || (Run == 4 && Bits == 2));
  extern __shared__ SharedRange shared_ranges[];
  padding.zero();
  zero_last_codes(dst, bits);
  const std::uint32_t number = thread_number();
  for (std::uint32_t m = number; m < lanes.maps; m += blockDim.y * kThreads) shared_ranges[m].clear();
  const std::uint32_t line = dst.by_block_columns(number);
  const std::uint32_t block_row = lanes.by_maps(line);
  const std::uint32_t map = line - block_row * lanes.maps;
  const std::uint32_t block = number - (line - block_row) * dst.block_columns;
  const std::int64_t first_map = static_cast<std::int64_t>(blockIdx.x) * lanes.maps;
  const bool exists = block_row < dst.block_rows && first_map + map < dst.layout.samples;
  const BlockPlace place(dst, block);
  const std::uint32_t columns = Run == kChunk ? kEdge : place.columns;
  const std::uint32_t offset = map * dst.positions + place.row * dst.width + place.column;
  const auto row_start = [&](std::uint32_t r) { return first_map * dst.positions + (offset + r * dst.width); };

  Chunk<Storage<Type>> rows[kEdge] = {};
#pragma unroll
  for (std::uint32_t r = 0; r < kEdge; ++r) {
    if (!exists || r >= place.rows) continue;
    if constexpr (Run == kChunk) {
      rows[r] = src.load(row_start(r), kChunk);
    } else {
      rows[r] = src.load_quads(row_start(r), columns);
    }
  }
  __syncthreads();
  const BlockSums sums = measure_block<Type, true>(place.rows, columns, [&](std::uint32_t r) { return rows[r]; });
  float average = math::dual_average(sums.sum, static_cast<float>(place.rows * columns));
  if (exists) store_average(dst, dst.average_index(first_map + map, block, 0), average);
  join_extremes(shared_ranges, map, exists, math::dual_residual(sums.least, average),
                -math::dual_residual(-sums.negated_most, average));
  __syncthreads();
  if (!exists) return;
  math::AffineGroup group = shared_ranges[map].group(bits);
  if (block == 0) store_stats(dst.stats, first_map + map, StatsType::bf16, {group.min, group.step});
  clear_void(rows, average, group);
  const math::HashKey key = seed.key();
  for_each_row<true>(place.rows, [&](std::uint32_t r) {
    const auto step = [&](int i) { return math::affine_steps<true>(widen<Type>(rows[r], i) - average, group); };
    if constexpr (Run == kChunk) {
      encode_steps<Bits>(dst, bits, key, row_start(r), kChunk, step);
    } else {
      encode_quads(dst, key, row_start(r), columns, step);
    }
  });
}

/// Eight channels of one block, if channels lie last and their number is a multiple of eight.
template <DType Type>
class ChannelBlock {
 public:
  using MapChunk = Chunk<Storage<Type>>;

  __device__ ChannelBlock(const DualBuffer& buffer, std::int64_t sample, std::uint32_t channel, std::uint32_t block)
      : buffer_(buffer),
        place_(buffer, block),
        row_elems_(buffer.width * buffer.channels),
        origin_(
            (sample * buffer.positions + (place_.slice * buffer.height + place_.row) * buffer.width + place_.column) *
                buffer.channels +
            channel) {}

  /// Computes the sums of the eight channels over the whole block, and their extremes.
  __device__ void measure(const DenseAccess<Storage<Type>>& src, float (&sums)[kChunk],
                          NeighbourExtremes<Type>& extremes) const {
    float tree[kBlockShift][kChunk];
#pragma unroll
    for (std::uint32_t c = 0; c < kEdge; ++c) {
      float column[kChunk] = {};
      if (c < place_.columns) take_column(src, c, column, extremes);
        // Neighbours are added as soon as both exist.
#pragma unroll
      for (int height = 0; height < kBlockShift; ++height) {
        const bool is_right = (c >> height & 1U) != 0;
#pragma unroll
        for (int i = 0; i < kChunk; ++i) {
          if (is_right) {
            column[i] = tree[height][i] + column[i];
          } else {
            tree[height][i] = column[i];
          }
        }
        if (!is_right) break;
      }
#pragma unroll
      for (int i = 0; c == kEdge - 1 && i < kChunk; ++i) sums[i] = column[i];
    }
  }

  /// Calls body(chunk, first) for the elements of each position; `first` is the number of the first element.
  template <class Body>
  __device__ void for_each(const DenseAccess<Storage<Type>>& src, Body body) const {
    for (std::uint32_t slice = 0; slice < place_.slices; ++slice) {
      for (std::uint32_t row = 0; row < place_.rows; ++row) {
        const std::int64_t first = row_start(slice, row);
        MapChunk chunks[kEdge];
#pragma unroll
        for (std::uint32_t c = 0; c < kEdge; ++c) {
          if (c < place_.columns) chunks[c] = src.load(first + c * buffer_.channels, kChunk);
        }
#pragma unroll
        for (std::uint32_t c = 0; c < kEdge; ++c) {
          if (c < place_.columns) body(chunks[c], first + c * buffer_.channels);
        }
      }
    }
  }

  [[nodiscard]] __device__ float count() const {
    return static_cast<float>(place_.slices * place_.rows * place_.columns);
  }

 private:
  [[nodiscard]] __device__ std::int64_t row_start(std::uint32_t slice, std::uint32_t row) const {
    return origin_ + static_cast<std::int64_t>(slice * buffer_.height + row) * row_elems_;
  }

  __device__ void take_column(const DenseAccess<Storage<Type>>& src, std::uint32_t c, float (&column)[kChunk],
                              NeighbourExtremes<Type>& extremes) const {
    for (std::uint32_t slice = 0; slice < place_.slices; ++slice) {
      const std::int64_t first = row_start(slice, 0) + c * buffer_.channels;
      MapChunk rows[kEdge];
#pragma unroll
      for (std::uint32_t r = 0; r < kEdge; ++r) {
        if (r < place_.rows) rows[r] = src.load_cached(first + r * static_cast<std::int64_t>(row_elems_));
      }
#pragma unroll
      for (std::uint32_t r = 0; r < kEdge; ++r) {
        if (r >= place_.rows) break;
        extremes.take(rows[r]);
#pragma unroll
        for (int i = 0; i < kChunk; ++i) column[i] += widen<Type>(rows[r], i);
      }
    }
  }

  const DualBuffer& buffer_;
  BlockPlace place_;
  std::uint32_t row_elems_;
  std::int64_t origin_;
};

/// Encodes maps whose channels lie last and are a multiple of eight. A lane processes eight channels of a block; `1 <<
/// lanes_log` lanes lie next to each other along the channels, the others along the blocks. A thread block processes
/// all positions of its channels in one sample. It reads them twice, because they are too many to keep.
template <DType Type, int Bits>
__global__ void __launch_bounds__(kChannelThreads, 2)
    dual_encode_channels_kernel(const __grid_constant__ DenseAccess<Storage<Type>> src,
                                const __grid_constant__ DualBuffer dst, int bits, int lanes_log,
                                std::uint32_t channel_tiles, const __grid_constant__ KernelSeed seed,
                                const __grid_constant__ Padding padding) {
  extern __shared__ SharedRange shared_ranges[];
  padding.zero();
  zero_last_codes(dst, bits);
  const std::uint32_t number = thread_number();
  const std::uint32_t threads = blockDim.y * kThreads;
  const std::uint32_t own_channels = static_cast<std::uint32_t>(kChunk) << lanes_log;
  const std::int64_t sample = blockIdx.x / channel_tiles;
  const std::uint32_t first_channel = (blockIdx.x % channel_tiles) * own_channels;
  const std::uint32_t inside = (number & ((1U << lanes_log) - 1)) * kChunk;
  const std::uint32_t channel = first_channel + inside;
  const std::uint32_t first_block = number >> lanes_log;
  const std::uint32_t block_step = threads >> lanes_log;
  const bool exists = channel < dst.channels;
  for (std::uint32_t c = number; c < own_channels; c += threads) shared_ranges[c].clear();
  __syncthreads();
  for (std::uint32_t block = first_block; exists && block < dst.blocks; block += block_step) {
    const ChannelBlock<Type> own(dst, sample, channel, block);
    float sums[kChunk];
    NeighbourExtremes<Type> extremes;
    own.measure(src, sums, extremes);
    std::uint32_t averages[kChunk / 2] = {};
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const float average = math::dual_average(sums[i], own.count());
      averages[i / 2] |= math::bits_of(average) >> 16 << (i % 2 * 16);
      atomicMin(&shared_ranges[inside + i].least, order_key(math::dual_residual(extremes.least(i), average)));
      atomicMin(&shared_ranges[inside + i].negated_most, order_key(-math::dual_residual(extremes.most(i), average)));
    }
    *reinterpret_cast<uint4*>(dst.averages + dst.average_index(sample, block, channel)) =
        make_uint4(averages[0], averages[1], averages[2], averages[3]);
  }
  __syncthreads();
  for (std::uint32_t c = number; c < own_channels && first_channel + c < dst.channels; c += threads) {
    shared_ranges[c].finish(dst, sample * dst.channels + first_channel + c, bits);
  }
  __syncthreads();
  if (!exists) return;
  ChunkGroups groups;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    groups.set(i, 0.0F, shared_ranges[inside + i].min, shared_ranges[inside + i].inverse);
  }
  const math::HashKey key = seed.key();
  for (std::uint32_t block = first_block; block < dst.blocks; block += block_step) {
    const ChannelBlock<Type> own(dst, sample, channel, block);
    const uint4 four = *reinterpret_cast<const uint4*>(dst.averages + dst.average_index(sample, block, channel));
    const Chunk<std::uint16_t> averages{{four.x, four.y, four.z, four.w}};
#pragma unroll
    for (int i = 0; i < kChunk; ++i) groups.average[i] = widen<DType::bf16>(averages, i);
    own.for_each(src, [&](const Chunk<Storage<Type>>& chunk, std::int64_t first) {
      encode_chunk<Type, Bits>(chunk, dst, bits, key, first, kChunk, groups);
    });
  }
}

}  // namespace actzip::cuda
