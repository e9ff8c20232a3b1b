// Where the i-th element of a view lies: format.md, section 1.
#pragma once

#include <cstdint>

#include "actzip/view.hpp"
#include "macros.hpp"

namespace actzip::format {

/// A shape in memory order, in which neighbouring dimensions are merged where possible. Offsets are in elements.
struct ElementOrder {
  std::int64_t elems = 0;
  int rank = 0;  ///< 0: one element or none; 1 with stride 1: dense
  std::int64_t sizes[kMaxRank] = {};
  std::int64_t strides[kMaxRank] = {};

  [[nodiscard]] ACTZIP_HD constexpr bool dense() const { return rank == 0 || (rank == 1 && strides[0] == 1); }

  /// Offset of element `i`.
  [[nodiscard]] ACTZIP_HD constexpr std::int64_t offset(std::int64_t i) const {
    std::int64_t result = 0;
    for (int d = rank - 1; d > 0; --d) {
      const std::int64_t rest = i / sizes[d];
      result += (i - rest * sizes[d]) * strides[d];
      i = rest;
    }
    return rank == 0 ? 0 : result + i * strides[0];
  }
};

/// Throws Error(invalid_view) for a rank above kMaxRank, a negative size or stride, or too many elements.
ElementOrder element_order(const Shape& shape);

/// Whether two indices may name the same element. Such a view can be read but not written.
bool overlaps_itself(const ElementOrder& order);

}  // namespace actzip::format
