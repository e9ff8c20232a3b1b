// The spec of `dual` for a tensor: codecs see a run of elements, and this one has to know the maps in it. And where its
// two parts stand in the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "actzip/spec.hpp"
#include "actzip/view.hpp"

namespace actzip {

/// `parameters` with size and channels of `shape`, which is N,C,L or N,C,H,W or N,C,D,H,W with the dimensions in this
/// order or with C last in memory, dense or not. None if it has no extent behind N and C, so that every average would
/// be of one element; if dimensions lie in another order; if some are expanded; or for other ranks.
std::optional<Dual> dual_spec(const Dual& parameters, const Shape& shape);

/// Bytes that the parts of an encoding take, in their order. It begins with the statistics, the averages follow at
/// once; before the codes and after them there is padding.
struct DualBytes {
  std::size_t statistics = 0;  ///< min and step of every map, of the high part
  std::size_t averages = 0;    ///< the low part
  std::size_t codes = 0;       ///< the high part's
};

/// Of `elems` elements. Where its statistics are all 0, an encoding decodes to the low part alone: every element to the
/// average of its block. Throws Error as encoded_bytes() does.
DualBytes dual_bytes(const Dual& spec, std::int64_t elems);

}  // namespace actzip
