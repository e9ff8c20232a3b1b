// The parts of an encoded `dual` buffer, and to which of them an element belongs.
#pragma once

#include <cstdint>

#include "cuda/chunk.cuh"
#include "cuda/values.cuh"
#include "format/dual.hpp"

namespace actzip::cuda {

inline constexpr int kBlockShift = 3;  ///< of blocks that have kernels of their own: an edge of 8

/// Whether all samples are whole and blocks have that edge, as most kernels for dense elements require.
inline bool in_whole_blocks(const format::DualLayout& layout) {
  return layout.shift == kBlockShift && layout.elems == layout.samples * layout.positions * layout.channels;
}

/// Divides numbers below 2^31 by a divisor known at launch, with a product and a shift.
class Divisor {
 public:
  explicit Divisor(std::int64_t divisor) {
    while (std::int64_t{1} << log_ < divisor) ++log_;
    const auto d = static_cast<std::uint64_t>(divisor);
    factor_ = static_cast<std::uint32_t>(((std::uint64_t{1} << (31 + log_)) + d - 1) / d);
  }

  [[nodiscard]] __device__ std::uint32_t operator()(std::uint32_t number) const {
    return __umulhi(2U * number, factor_) >> log_;
  }

 private:
  int log_ = 0;  ///< the divisor is above 2^(log - 1) and at most 2^log, so the factor has 32 bits
  std::uint32_t factor_;
};

/// Positions of a map and channels are below 2^31, so places in a map are computed in 32 bits.
struct DualBuffer {
  std::byte* stats;
  std::uint16_t* averages;
  std::byte* codes;
  std::int64_t codes_bytes;
  format::DualLayout layout;
  std::uint32_t channels, positions, depth, height, width, block_rows, block_columns, blocks;
  int shift;
  bool is_small;  ///< all element numbers are below 2^31
  Divisor by_channels, by_positions, by_height, by_width, by_block_rows, by_block_columns, by_blocks;

  DualBuffer(const Dual& spec, const std::byte* data, const format::Sections& sections, std::int64_t elems)
      : stats(const_cast<std::byte*>(data) + sections.stats),
        codes(const_cast<std::byte*>(data) + sections.codes),
        codes_bytes(sections.codes_used),
        layout(format::dual_layout(spec, elems)),
        channels(static_cast<std::uint32_t>(layout.channels)),
        positions(static_cast<std::uint32_t>(layout.positions)),
        depth(static_cast<std::uint32_t>(layout.depth)),
        height(static_cast<std::uint32_t>(layout.height)),
        width(static_cast<std::uint32_t>(layout.width)),
        block_rows(static_cast<std::uint32_t>(layout.block_rows)),
        block_columns(static_cast<std::uint32_t>(layout.block_columns)),
        blocks(static_cast<std::uint32_t>(layout.blocks)),
        shift(layout.shift),
        is_small(elems + kTile < std::int64_t{1} << 31),
        by_channels(channels),
        by_positions(positions),
        by_height(height),
        by_width(width),
        by_block_rows(block_rows),
        by_block_columns(block_columns),
        by_blocks(blocks) {
    averages = reinterpret_cast<std::uint16_t*>(stats + layout.averages_offset());
  }

  [[nodiscard]] __device__ std::int64_t quotient(std::int64_t number, const Divisor& by, std::uint32_t divisor) const {
    return is_small ? by(static_cast<std::uint32_t>(number)) : number / divisor;
  }

  [[nodiscard]] __device__ float average(std::int64_t i) const { return math::bf16_to_f32(averages[i]); }

  [[nodiscard]] __device__ std::int64_t average_index(std::int64_t sample, std::uint32_t block,
                                                      std::uint32_t channel) const {
    return (sample * blocks + block) * channels + channel;
  }
};

/// The block of a position. `line` is the number of rows before its own.
[[nodiscard]] __device__ __forceinline__ std::uint32_t block_of(const DualBuffer& buffer, std::uint32_t line,
                                                                std::uint32_t column) {
  std::uint32_t row = line;
  std::uint32_t above = 0;
  if (buffer.depth > 1) {
    const std::uint32_t slice = buffer.by_height(line);
    row -= slice * buffer.height;
    above = (slice >> buffer.shift) * buffer.block_rows;
  }
  return (above + (row >> buffer.shift)) * buffer.block_columns + (column >> buffer.shift);
}

/// The place of an element.
struct DualPlace {
  std::int64_t sample;
  std::uint32_t channel;
  std::uint32_t position;
  std::uint32_t line;  ///< number of rows before its own
  std::uint32_t column;

  __device__ DualPlace(const DualBuffer& buffer, std::int64_t element) {
    std::int64_t point = element;
    if (buffer.channels > 1) point = buffer.quotient(element, buffer.by_channels, buffer.channels);
    channel = static_cast<std::uint32_t>(element - point * buffer.channels);
    sample = buffer.quotient(point, buffer.by_positions, buffer.positions);
    position = static_cast<std::uint32_t>(point - sample * buffer.positions);
    line = buffer.by_width(position);
    column = position - line * buffer.width;
  }

  [[nodiscard]] __device__ std::uint32_t block(const DualBuffer& buffer) const {
    return block_of(buffer, line, column);
  }

  /// Moves on by one position.
  __device__ void next(const DualBuffer& buffer) {
    ++position;
    if (++column < buffer.width) return;
    column = 0;
    ++line;
    if (position < buffer.positions) return;
    position = line = 0;
    ++sample;
  }
};

}  // namespace actzip::cuda
