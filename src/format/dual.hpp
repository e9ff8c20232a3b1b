// How the maps of `dual` lie in a run of elements, how blocks tile them, and where averages and statistics are stored:
// section 9 of format.md.
#pragma once

#include <cstdint>

#include "actzip/spec.hpp"
#include "format/geometry.hpp"
#include "macros.hpp"

namespace actzip::format {

/// Element i is channel i % channels of position i / channels. Positions run through the samples one by one. A last
/// sample that is cut short counts as whole in `samples`.
struct DualLayout {
  std::int64_t elems = 0;
  std::int64_t samples = 0;
  std::int64_t channels = 1;
  std::int64_t positions = 1;  ///< of a map
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t depth = 1;
  std::int64_t block_rows = 1;     ///< blocks along the height
  std::int64_t block_columns = 1;  ///< blocks along the width
  std::int64_t blocks = 1;         ///< of a map
  int shift = 0;                   ///< a block has 1 << shift positions in each dimension

  [[nodiscard]] ACTZIP_HD constexpr std::int64_t maps() const { return samples * channels; }
  [[nodiscard]] ACTZIP_HD constexpr std::int64_t averages() const { return samples * blocks * channels; }

  /// Offset of the averages in the statistics section, behind the pairs of all maps.
  [[nodiscard]] ACTZIP_HD constexpr std::int64_t averages_offset() const { return maps() * 4; }

  /// Number of a block's average among all averages. They are stored in the order of the elements.
  [[nodiscard]] ACTZIP_HD constexpr std::int64_t average_index(std::int64_t sample, std::int64_t block,
                                                               std::int64_t channel) const {
    return (sample * blocks + block) * channels + channel;
  }

  /// How many positions of a map exist, counted from its first: all of them, except in a last sample that is cut short.
  [[nodiscard]] ACTZIP_HD constexpr std::int64_t present(std::int64_t sample, std::int64_t channel) const {
    const std::int64_t left = elems - sample * positions * channels - channel;
    const std::int64_t count = left <= 0 ? 0 : (left + channels - 1) / channels;
    return count < positions ? count : positions;
  }
};

/// Always inlined, for the reason that ACTZIP_HD gives. It has no device version, because Dual is for the host only.
__attribute__((always_inline)) constexpr DualLayout dual_layout(const Dual& spec, std::int64_t elems) {
  DualLayout layout;
  layout.elems = elems;
  layout.channels = spec.last;
  layout.depth = spec.size.depth;
  layout.height = spec.size.height;
  layout.width = spec.size.width;
  layout.positions = layout.depth * layout.height * layout.width;  // MapSize's function may be out of line
  layout.samples = ceil_div(elems, layout.positions * layout.channels);
  while (std::int64_t{1} << layout.shift < spec.block) ++layout.shift;
  layout.block_rows = ceil_div(layout.height, spec.block);
  layout.block_columns = ceil_div(layout.width, spec.block);
  layout.blocks = ceil_div(layout.depth, spec.block) * layout.block_rows * layout.block_columns;
  return layout;
}

/// The positions of one block: from `first` to before `last` in each dimension, clipped to the map.
struct BlockBox {
  std::int64_t depth_first, depth_last;
  std::int64_t row_first, row_last;
  std::int64_t column_first, column_last;
};

/// `slice`, `row` and `column` number the blocks along each dimension.
ACTZIP_HD constexpr BlockBox block_box(const DualLayout& layout, std::int64_t slice, std::int64_t row,
                                       std::int64_t column) {
  const auto end = [&](std::int64_t number, std::int64_t extent) {
    const std::int64_t next = (number + 1) << layout.shift;
    return next < extent ? next : extent;
  };
  return {slice << layout.shift,   end(slice, layout.depth), row << layout.shift,
          end(row, layout.height), column << layout.shift,   end(column, layout.width)};
}

ACTZIP_HD constexpr BlockBox block_box(const DualLayout& layout, std::int64_t block) {
  const std::int64_t rest = block / layout.block_columns;
  const std::int64_t slice = rest / layout.block_rows;
  return block_box(layout, slice, rest - slice * layout.block_rows, block - rest * layout.block_columns);
}

/// Number of elements that a block has in a map of which `present` positions exist.
ACTZIP_HD constexpr std::int64_t block_count(const DualLayout& layout, const BlockBox& box, std::int64_t present) {
  const std::int64_t columns = box.column_last - box.column_first;
  if (present >= layout.positions) {
    return (box.depth_last - box.depth_first) * (box.row_last - box.row_first) * columns;
  }
  std::int64_t count = 0;
  for (std::int64_t d = box.depth_first; d < box.depth_last; ++d) {
    for (std::int64_t row = box.row_first; row < box.row_last; ++row) {
      const std::int64_t left = present - ((d * layout.height + row) * layout.width + box.column_first);
      count += left < 0 ? 0 : left < columns ? left : columns;
    }
  }
  return count;
}

/// The block that contains a position.
ACTZIP_HD constexpr std::int64_t block_of(const DualLayout& layout, std::int64_t position) {
  const std::int64_t line = position / layout.width;
  const std::int64_t column = position - line * layout.width;
  const std::int64_t slice = line / layout.height;
  const std::int64_t row = line - slice * layout.height;
  return ((slice >> layout.shift) * layout.block_rows + (row >> layout.shift)) * layout.block_columns +
         (column >> layout.shift);
}

constexpr Sections sections(const Dual& spec, const Geometry& geometry, DType /*dtype*/) {
  const DualLayout layout = dual_layout(spec, geometry.elems);
  return detail::place(0, layout.averages_offset() + layout.averages() * 2,
                       ceil_div(geometry.elems * spec.bits.value, 32) * 4, 0);
}

}  // namespace actzip::format
