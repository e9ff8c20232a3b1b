// Decodes `dual` element by element, in memory order. The kernels differ in how often they compute the place of an
// element.
#pragma once

#include <cstdint>

#include "cuda/dual_buffer.cuh"
#include "cuda/segment_bits.cuh"
#include "cuda/uniform.cuh"
#include "math/dual.hpp"

namespace actzip::cuda {

/// The average, min and step for each element of a chunk.
struct ChunkStats {
  float average[kChunk] = {};
  float min[kChunk] = {};
  float step[kChunk] = {};

  /// Sets min and step of eight neighbouring channels.
  __device__ void set_stats(const std::byte* stats) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 four = reinterpret_cast<const uint4*>(stats)[half];
      const std::uint32_t words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const Stats own = bf16_stats(words[k]);
        min[4 * half + k] = own.first;
        step[4 * half + k] = own.second;
      }
    }
  }
  __device__ void set_averages(const std::uint16_t* averages) {
    const uint4 four = *reinterpret_cast<const uint4*>(averages);
    const Chunk<std::uint16_t> own{{four.x, four.y, four.z, four.w}};
#pragma unroll
    for (int i = 0; i < kChunk; ++i) average[i] = widen<DType::bf16>(own, i);
  }

  /// Sets the numbers of `Count` elements from `first` on.
  template <int Count>
  __device__ void set(int first, float own_average, Stats stats) {
#pragma unroll
    for (int i = first; i < first + Count; ++i) {
      average[i] = own_average;
      min[i] = stats.first;
      step[i] = stats.second;
    }
  }
};

/// For maps that lie one behind the other, in which runs of `Run` elements lie in one block: the width is a multiple of
/// `Run`. Counts in 32 bits, starting at the map of the first element.
template <int Run>
class ByRuns {
 public:
  __device__ ByRuns(const DualBuffer& buffer, std::int64_t first) : buffer_(buffer) {
    const std::int64_t map = buffer.quotient(first, buffer.by_positions, buffer.positions);
    first_ = static_cast<std::uint32_t>(first - map * buffer.positions);
    stats_ = reinterpret_cast<const std::uint32_t*>(buffer.stats) + map;
    averages_ = buffer.averages + map * buffer.blocks;
  }

  /// The numbers of a chunk that begins `offset` elements behind the first one (below kTile) and has `count` elements.
  [[nodiscard]] __device__ ChunkStats of(std::uint32_t offset, int count) const {
    ChunkStats stats;
    std::uint32_t map = buffer_.by_positions(first_ + offset);
    std::uint32_t position = first_ + offset - map * buffer_.positions;
    std::uint32_t line = buffer_.by_width(position);
    std::uint32_t column = position - line * buffer_.width;
#pragma unroll
    for (int i = 0; i < kChunk; i += Run) {
      if (i >= count) break;
      const std::uint32_t at = map * buffer_.blocks + block_of(buffer_, line, column);
      stats.set<Run>(i, math::bf16_to_f32(averages_[at]), bf16_stats(stats_[map]));
      column += Run;
      position += Run;
      if (column < buffer_.width) continue;
      column = 0;
      ++line;
      if (position < buffer_.positions) continue;
      position = line = 0;
      ++map;
    }
    return stats;
  }

 private:
  const DualBuffer& buffer_;
  std::uint32_t first_;
  const std::uint32_t* stats_;
  const std::uint16_t* averages_;
};

/// For any maps.
class ByElement {
 public:
  __device__ ByElement(const DualBuffer& buffer, std::int64_t first) : buffer_(buffer), first_(first) {}

  [[nodiscard]] __device__ ChunkStats of(std::uint32_t offset, int count) const {
    ChunkStats stats;
    DualPlace place(buffer_, first_ + offset);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i >= count) break;
      stats.set<1>(i, buffer_.average(buffer_.average_index(place.sample, place.block(buffer_), place.channel)),
                   load_stats(buffer_.stats, place.sample * buffer_.channels + place.channel, StatsType::bf16));
      if (++place.channel < buffer_.channels) continue;
      place.channel = 0;
      place.next(buffer_);
    }
    return stats;
  }

 private:
  const DualBuffer& buffer_;
  std::int64_t first_;
};

/// The codes of a chunk in the form that affine_value() expects. noise(q) is the noise of its elements 4 * q to 4 * q +
/// 3.
template <int Bits, class Noise>
__device__ __forceinline__ void chunk_numbers(std::uint64_t packed, int bits, bool dithered, Noise noise,
                                              std::uint32_t (&numbers)[kChunk]) {
  with_width<Bits, Dual::kMostBits>(bits, [&]<int Width>() {
    if (dithered) {
      code_numbers<Width, true>(packed, {noise(0U), noise(1U)}, numbers);
    } else {
      code_numbers<Width, false>(packed, {0, 0}, numbers);
    }
  });
}

/// Decodes the elements of one chunk.
template <DType Type>
[[nodiscard]] __device__ __forceinline__ Chunk<Storage<Type>> decode_chunk(const std::uint32_t (&numbers)[kChunk],
                                                                           const ChunkStats& stats) {
  float values[kChunk];
  float sum = 0.0F;  // NaN if any value is
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    values[i] = math::affine_value(numbers[i], stats.min[i], stats.step[i]) + stats.average[i];
    sum += values[i];
  }
  Chunk<Storage<Type>> chunk = {};
  if (!math::is_nan(sum)) {
    narrow<Type>(values, chunk.w);
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) chunk.set(i, math::Element<Type>::narrow(values[i]));
  }
  return chunk;
}

template <DType Type, int Bits, class MapStats, class Access>
__global__ void __launch_bounds__(kThreads, 8)
    dual_decode_kernel(const __grid_constant__ DualBuffer src, const __grid_constant__ Access dst, int bits,
                       bool dithered, const __grid_constant__ KernelSeed seed) {
  const std::int64_t elems = src.layout.elems;
  const math::HashKey key = seed.key();
  on_tile(format::ceil_div(elems, kTile), [&](std::int64_t tile, std::uint32_t lane) {
    const TileNoise tile_noise(key, tile);
    const std::int64_t first = tile * kTile + lane * kChunk;
    const bool full = (tile + 1) * kTile <= elems;
    std::uint64_t packed[kChunksPerLane];
    with_width<Bits, Dual::kMostBits>(bits, [&]<int Width>() {
      const std::int64_t at = first / kChunk * Width;
#pragma unroll
      for (int j = 0; j < kChunksPerLane; ++j) {
        const std::int64_t own = at + j * kWarp * Width;
        packed[j] = load_codes<Width>(src.codes + own, full ? Width : src.codes_bytes - own);
      }
    });
    const MapStats stats(src, first);
#pragma unroll
    for (int j = 0; j < kChunksPerLane; ++j) {
      constexpr int kStep = kWarp * kChunk;
      const int count = full ? kChunk : count_from(first + j * kStep, elems);
      std::uint32_t numbers[kChunk];
      const auto noise = [&](std::uint32_t q) { return tile_noise.of_quad(2 * (j * kWarp + lane) ^ q); };
      chunk_numbers<Bits>(packed[j], bits, dithered, noise, numbers);
      const auto chunk = decode_chunk<Type>(numbers, stats.of(j * kStep, count));
      store_tile_chunk(dst, tile, first + j * kStep, elems, chunk);
    }
  });
}

/// How rows of channels, a multiple of eight, are distributed over lanes. A row here is as many positions as it takes
/// for its chunks to fill whole warps. A lane then has the same channels in every row.
struct ChannelLanes {
  std::uint32_t positions;  ///< of a row
  std::uint32_t warps;      ///< of a row
  std::uint32_t chunks;     ///< of a position

  explicit ChannelLanes(std::int64_t channels) : chunks(static_cast<std::uint32_t>(channels / kChunk)) {
    positions = 1;
    while (positions * chunks % kWarp != 0) positions *= 2;
    warps = positions * chunks / kWarp;
  }
};

/// Number of rows that a warp decodes.
inline constexpr int kRowsOfWarp = 8;

/// Decodes maps whose channels lie last. Statistics are read once for all rows of a warp that lie in one sample.
template <DType Type, int Bits>
__global__ void __launch_bounds__(kThreads, 8)
    dual_decode_channels_kernel(const __grid_constant__ DualBuffer src,
                                const __grid_constant__ DenseAccess<Storage<Type>> dst, int bits, bool dithered,
                                const __grid_constant__ ChannelLanes lanes, const __grid_constant__ KernelSeed seed) {
  const std::int64_t warp = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  const std::int64_t batch = src.is_small ? static_cast<std::uint32_t>(warp) / lanes.warps : warp / lanes.warps;
  const auto part = static_cast<std::uint32_t>(warp - batch * lanes.warps);
  const std::uint32_t inside = part * kWarp + threadIdx.x % kWarp;
  const std::uint32_t offset = inside / lanes.chunks;
  const std::uint32_t channel = (inside - offset * lanes.chunks) * kChunk;
  const std::int64_t point = batch * kRowsOfWarp * lanes.positions + offset;
  const std::int64_t points = src.layout.elems / src.channels;
  const auto element = [&](int row) { return (point + row * lanes.positions) * src.channels + channel; };
  const auto exists = [&](int row) { return point + row * lanes.positions < points; };
  const bool whole = __all_sync(~0U, exists(kRowsOfWarp - 1)) != 0;
  if (!exists(0)) return;

  std::uint64_t packed[kRowsOfWarp] = {};
  with_width<Bits, Dual::kMostBits>(bits, [&]<int Width>() {
#pragma unroll
    for (int row = 0; row < kRowsOfWarp; ++row) {
      if (exists(row)) packed[row] = load_codes<Width>(src.codes + element(row) / kChunk * Width, Width);
    }
  });
  std::int64_t sample = src.quotient(point, src.by_positions, src.positions);
  auto position = static_cast<std::uint32_t>(point - sample * src.positions);
  const math::HashKey key = seed.key();
  ChunkStats stats;
  bool is_new = true;
#pragma unroll
  for (int row = 0; row < kRowsOfWarp; ++row) {
    if (!exists(row)) return;
    for (; position >= src.positions; position -= src.positions) {
      ++sample;
      is_new = true;
    }
    if (is_new) stats.set_stats(src.stats + (sample * src.channels + channel) * 4);
    is_new = false;
    const std::uint32_t line = src.by_width(position);
    stats.set_averages(src.averages +
                       src.average_index(sample, block_of(src, line, position - line * src.width), channel));
    std::uint32_t numbers[kChunk];
    const std::int64_t first = element(row);
    const auto noise = [&](std::uint32_t q) {
      return TileNoise(key, first / kTile).of_quad(static_cast<std::uint32_t>(first) % kTile / 4 ^ q);
    };
    chunk_numbers<Bits>(packed[row], bits, dithered, noise, numbers);
    const auto chunk = decode_chunk<Type>(numbers, stats);
    if (whole) {
      dst.store_full(first, 0, chunk);
    } else {
      dst.store(first, kChunk, chunk);
    }
    position += lanes.positions;
  }
}

}  // namespace actzip::cuda
