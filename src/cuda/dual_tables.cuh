// Decodes `dual` with 2 bits and without dither by tables: a block has at most four different elements, which are
// computed once and selected by the codes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/dual_buffer.cuh"
#include "math/dual.hpp"

namespace actzip::cuda {

/// The element for each code of one block.
template <DType Type>
class CodeTable {
 public:
  CodeTable() = default;
  __device__ CodeTable(float average, Stats stats) {
    float values[kCodes];
    float sum = 0.0F;  // NaN if any value is
#pragma unroll
    for (std::uint32_t code = 0; code < kCodes; ++code) {
      values[code] = math::affine_dequantize<false>(code, stats.first, stats.second, 0U) + average;
      sum += values[code];
    }
    if (!math::is_nan(sum)) {
      narrow<Type>(values, words_);
    } else {
#pragma unroll
      for (int code = 0; code < kCodes; ++code) elements()[code] = math::Element<Type>::narrow(values[code]);
    }
  }

  /// Two elements of 16 bits. `selector` is what code_selectors() returns for their codes.
  [[nodiscard]] __device__ std::uint32_t pair(std::uint32_t selector) const {
    std::uint32_t result;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(words_[0]), "r"(words_[1]), "r"(selector));
    return result;
  }

  [[nodiscard]] __device__ std::uint32_t word(std::uint32_t code) const { return words_[code]; }

 private:
  static constexpr int kCodes = 4;
  [[nodiscard]] __device__ Storage<Type>* elements() { return reinterpret_cast<Storage<Type>*>(words_); }

  // Aligned as a whole, so that one instruction reads it.
  alignas(kCodes * sizeof(Storage<Type>)) std::uint32_t words_[kCodes * sizeof(Storage<Type>) / 4];
};

/// Turns codes, one in each byte, into the numbers of the two bytes of their element in a table. A byte permute takes
/// two codes.
[[nodiscard]] __device__ __forceinline__ std::uint32_t code_selectors(std::uint32_t codes) {
  return codes * 0x22U + 0x10101010U;
}

/// Spreads four neighbouring codes to one per byte.
[[nodiscard]] __device__ __forceinline__ std::uint32_t code_bytes(std::uint32_t packed) {
  const std::uint32_t pairs = packed * 0x1001U & 0x000f000fU;
  return pairs * 0x41U & 0x03030303U;
}

/// Number of elements that a thread block decodes.
inline constexpr int kTableTile = kThreads * kChunk * 2 * kChunksPerLane;

/// The most tables that a thread block needs: those of all lines of blocks that its elements touch, and one behind
/// them, which kStacked reads even if it does not use it.
inline std::int64_t most_tables(const format::DualLayout& layout) {
  const std::int64_t maps = kTableTile / layout.positions + 2;
  const std::int64_t rows = kTableTile / layout.width + 2;
  return std::min(maps * layout.blocks, ((rows >> layout.shift) + maps + 1) * layout.block_columns) + 1;
}

/// Stands for a run: blocks lie one behind the other, and a chunk touches at most two of them.
inline constexpr int kStacked = 0;

/// Whether blocks are stacked and runs along rows would not be faster.
inline bool is_stacked(const format::DualLayout& layout) {
  const std::int64_t last_rows = layout.height - ((layout.block_rows - 1) << layout.shift);
  return layout.block_columns == 1 && layout.width % 2 != 0 && last_rows * layout.width >= kChunk - 1;
}

/// Decodes maps that lie one behind the other, with a depth of 1. Runs of `Run` elements lie in one block: the width is
/// a multiple of `Run`, or Run is kStacked. Tables lie in shared memory.
template <DType Type, int Run>
class TableDecoder {
 public:
  using MapChunk = Chunk<Storage<Type>>;

  __device__ TableDecoder(const DualBuffer& src, std::int64_t first, CodeTable<Type>* tables)
      : src_(src), tables_(tables) {
    map_ = src.quotient(first, src.by_positions, src.positions);
    first_ = static_cast<std::uint32_t>(first - map_ * src.positions);
    first_table_ = line_of(first_);
  }

  /// Computes the tables for `count` elements. All threads call it.
  __device__ void prepare(std::uint32_t count) const {
    const auto* const stats = reinterpret_cast<const std::uint32_t*>(src_.stats) + map_;
    const std::uint16_t* const averages = src_.averages + map_ * src_.blocks;
    const std::uint32_t last = line_of(first_ + count - 1) + src_.block_columns;
    for (std::uint32_t at = first_table_ + threadIdx.x; at < last; at += kThreads) {
      tables_[at - first_table_] =
          CodeTable<Type>(math::bf16_to_f32(averages[at]), bf16_stats(stats[src_.by_blocks(at)]));
    }
    __syncthreads();
  }

  /// Decodes the chunk that begins `offset` elements behind the first one.
  [[nodiscard]] __device__ MapChunk chunk(std::uint32_t offset, std::uint32_t packed) const {
    std::uint32_t map = src_.by_positions(first_ + offset);
    const std::uint32_t position = first_ + offset - map * src_.positions;
    std::uint32_t line = src_.by_width(position);
    const std::uint32_t selectors[2] = {code_selectors(code_bytes(packed & 255U)),
                                        code_selectors(code_bytes(packed >> 8))};
    if constexpr (Run == kStacked) {
      const std::uint32_t block_row = line >> src_.shift;
      const std::uint32_t end = min((block_row + 1) << src_.shift, src_.height) * src_.width;
      return pick_of_two(tables_ + (map * src_.blocks + block_row - first_table_), end - position, packed, selectors);
    }
    std::uint32_t column = position - line * src_.width;
    MapChunk result;
#pragma unroll
    for (int i = 0; i < kChunk; i += Run) {
      pick(tables_[table_of(map, line, column)], i, packed, selectors, result);
      column += Run;
      if (column < src_.width) continue;
      column = 0;
      if (++line < src_.height) continue;
      line = 0;
      ++map;
    }
    return result;
  }

 private:
  /// The first block of the line of blocks that contains an element.
  [[nodiscard]] __device__ std::uint32_t line_of(std::uint32_t element) const {
    const std::uint32_t map = src_.by_positions(element);
    const std::uint32_t line = src_.by_width(element - map * src_.positions);
    return map * src_.blocks + (line >> src_.shift) * src_.block_columns;
  }
  [[nodiscard]] __device__ std::uint32_t table_of(std::uint32_t map, std::uint32_t line, std::uint32_t column) const {
    return map * src_.blocks + (line >> src_.shift) * src_.block_columns + (column >> src_.shift) - first_table_;
  }

  /// Selects elements i to i + Run - 1 of a chunk.
  __device__ static void pick(const CodeTable<Type>& table, int i, std::uint32_t packed,
                              const std::uint32_t (&selectors)[2], MapChunk& result) {
    if constexpr (Type == DType::f32) {
#pragma unroll
      for (int k = i; k < i + Run; ++k) result.w[k] = table.word(packed >> (2 * k) & 3U);
    } else if constexpr (Run == 1) {
      const std::uint32_t own = table.pair(selectors[i / 4] >> (i % 4 * 8));
      result.w[i / 2] = i % 2 == 0 ? own : __byte_perm(result.w[i / 2], own, 0x5410);
    } else {
#pragma unroll
      for (int k = i; k < i + Run; k += 2) result.w[k / 2] = table.pair(selectors[k / 4] >> (k % 4 * 8));
    }
  }

  /// Selects a chunk of which `left` elements belong to the first of two tables and the others to the second.
  [[nodiscard]] __device__ static MapChunk pick_of_two(const CodeTable<Type>* tables, std::uint32_t left,
                                                       std::uint32_t packed, const std::uint32_t (&selectors)[2]) {
    MapChunk result;
    if constexpr (Type == DType::f32) {
#pragma unroll
      for (std::uint32_t k = 0; k < kChunk; ++k) result.w[k] = tables[k < left ? 0 : 1].word(packed >> (2 * k) & 3U);
    } else {
      const CodeTable<Type> first = tables[0];
      const CodeTable<Type> second = tables[1];
#pragma unroll
      for (std::uint32_t k = 0; k < kChunk; k += 2) {
        const std::uint32_t selector = selectors[k / 4] >> (k % 4 * 8);
        const std::uint32_t part = k + 1 < left ? 0x3210U : k < left ? 0x7610U : 0x7654U;
        result.w[k / 2] = __byte_perm(first.pair(selector), second.pair(selector), part);
      }
    }
    return result;
  }

  const DualBuffer& src_;
  CodeTable<Type>* tables_;
  std::int64_t map_;           ///< of the first element
  std::uint32_t first_;        ///< the first element, counted from that map's first
  std::uint32_t first_table_;  ///< the block of the first table, counted likewise
};

template <DType Type, int Run>
__global__ void __launch_bounds__(kThreads, 8)
    dual_decode_tables_kernel(const __grid_constant__ DualBuffer src,
                              const __grid_constant__ DenseAccess<Storage<Type>> dst) {
  extern __shared__ uint4 shared_tables[];
  const std::int64_t elems = src.layout.elems;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kTableTile;
  const auto count = static_cast<std::uint32_t>(min(std::int64_t{kTableTile}, elems - first));
  const TableDecoder<Type, Run> decoder(src, first, reinterpret_cast<CodeTable<Type>*>(shared_tables));
  decoder.prepare(count);
  constexpr std::uint32_t kStep = kThreads * kChunk;
#pragma unroll 1
  for (std::uint32_t round = threadIdx.x * kChunk; round < kTableTile; round += kChunksPerLane * kStep) {
    std::uint32_t packed[kChunksPerLane] = {};
#pragma unroll
    for (std::uint32_t j = 0; j < kChunksPerLane; ++j) {
      const std::int64_t at = (first + round + j * kStep) / kChunk * 2;
      if (round + j * kStep < count) {
        packed[j] = static_cast<std::uint32_t>(load_codes<2>(src.codes + at, src.codes_bytes - at));
      }
    }
#pragma unroll
    for (std::uint32_t j = 0; j < kChunksPerLane; ++j) {
      const std::uint32_t offset = round + j * kStep;
      if (count == kTableTile) {
        dst.store_full(first, static_cast<int>(offset), decoder.chunk(offset, packed[j]));
      } else if (offset < count) {
        dst.store(first + offset, count_from(offset, count), decoder.chunk(offset, packed[j]));
      }
    }
  }
}

/// Number of rows of a block that a lane decodes if channels lie last.
inline constexpr std::uint32_t kStripRows = 2;

/// How channels-last maps are distributed over lanes. A lane has eight channels of kStripRows rows of a block.
/// Neighbouring lanes have neighbouring channels, then neighbouring blocks of the same rows.
struct ChannelStrips {
  std::uint32_t chunks;  ///< per position
  std::uint32_t strips;  ///< per map, along its rows
  std::int64_t lanes;
  Divisor by_chunks, by_strips;

  explicit ChannelStrips(const format::DualLayout& layout)
      : chunks(static_cast<std::uint32_t>(layout.channels / kChunk)),
        strips(static_cast<std::uint32_t>(format::ceil_div(layout.height, std::int64_t{kStripRows}))),
        lanes(layout.samples * strips * layout.block_columns * chunks),
        by_chunks(chunks),
        by_strips(strips) {}
};

/// Decodes elements of 16 bits: whole samples in blocks of 8 x 8, with channels last and a multiple of eight, up to
/// 2^31 - 1 lanes. It decodes two positions at a time, so that a byte permute selects two elements of one channel.
template <DType Type>
__global__ void __launch_bounds__(kThreads, 8)
    dual_decode_strips_kernel(const __grid_constant__ DualBuffer src,
                              const __grid_constant__ DenseAccess<Storage<Type>> dst,
                              const __grid_constant__ ChannelStrips strips) {
  const std::uint32_t lane = blockIdx.x * kThreads + threadIdx.x;
  if (lane >= strips.lanes) return;
  const std::uint32_t strip = strips.by_chunks(lane);
  const std::uint32_t chunk = lane - strip * strips.chunks;
  const std::uint32_t line = src.by_block_columns(strip);
  const std::uint32_t block_column = strip - line * src.block_columns;
  const std::uint32_t sample = strips.by_strips(line);
  const std::uint32_t row = (line - sample * strips.strips) * kStripRows;
  const std::uint32_t rows = min(kStripRows, src.height - row);
  const std::uint32_t columns = min(8U, src.width - block_column * 8);

  CodeTable<Type> tables[kChunk];
  {
    const std::int64_t average =
        src.average_index(sample, (row >> 3) * src.block_columns + block_column, chunk * kChunk);
    const uint4 four = *reinterpret_cast<const uint4*>(src.averages + average);
    const Chunk<std::uint16_t> averages{{four.x, four.y, four.z, four.w}};
    const auto* const stats =
        reinterpret_cast<const uint4*>(src.stats) + (static_cast<std::int64_t>(sample) * strips.chunks + chunk) * 2;
    const uint4 low = stats[0];
    const uint4 high = stats[1];
    const std::uint32_t words[kChunk] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      tables[i] = CodeTable<Type>(widen<DType::bf16>(averages, i), bf16_stats(words[i]));
    }
  }
  std::int64_t first =
      ((static_cast<std::int64_t>(sample) * src.height + row) * src.width + block_column * 8) * strips.chunks +
      chunk;  // in chunks
#pragma unroll 1
  for (std::uint32_t r = 0; r < rows; ++r, first += static_cast<std::int64_t>(src.width) * strips.chunks) {
    const auto* const codes = reinterpret_cast<const std::uint16_t*>(src.codes) + first;
    std::uint32_t packed[8] = {};
#pragma unroll
    for (std::uint32_t c = 0; c < 8; ++c) {
      if (c < columns) packed[c] = codes[c * strips.chunks];
    }
#pragma unroll
    for (std::uint32_t c = 0; c < 8; c += 2) {
      if (c >= columns) break;
      const std::uint32_t both = __byte_perm(packed[c], packed[c + 1], 0x5140);
      std::uint32_t channels[kChunk];  // each one at both positions
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const std::uint32_t selectors = code_selectors(both >> (2 * k) & 0x03030303U);
        channels[k] = tables[k].pair(selectors);
        channels[k + 4] = tables[k + 4].pair(selectors >> 16);
      }
      std::uint32_t left[4];
      std::uint32_t right[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        left[k] = __byte_perm(channels[2 * k], channels[2 * k + 1], 0x5410);
        right[k] = __byte_perm(channels[2 * k], channels[2 * k + 1], 0x7632);
      }
      dst.store_quad((first + c * strips.chunks) * kChunk, 0, left);
      if (c + 1 < columns) dst.store_quad((first + (c + 1) * strips.chunks) * kChunk, 0, right);
    }
  }
}

}  // namespace actzip::cuda
