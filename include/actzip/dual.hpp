// Makes the spec of `dual` for a tensor, and says where the codec's two parts lie in the bytes. Codecs see a run of
// elements, but `dual` has to know the maps in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "actzip/spec.hpp"
#include "actzip/view.hpp"

namespace actzip {

/// Returns `parameters` with the size and channels of `shape`, which is N,C,L or N,C,H,W or N,C,D,H,W with the
/// dimensions in this order or with C last in memory, dense or not. Returns nothing for other ranks; if the shape has
/// no extent behind N and C, since every average would cover one element; if the dimensions lie in another order; or if
/// some are expanded.
std::optional<Dual> dual_spec(const Dual& parameters, const Shape& shape);

/// Bytes of the parts of an encoding, in their order. The statistics come first, and the averages follow immediately;
/// there is padding before the codes and after them.
struct DualBytes {
  std::size_t statistics = 0;  ///< min and step of every map, for the high part
  std::size_t averages = 0;    ///< the low part
  std::size_t codes = 0;       ///< of the high part
};

/// Returns the sizes for `elems` elements. If its statistics are all 0, an encoding decodes to the low part alone:
/// every element to the average of its block. Throws Error as encoded_bytes() does.
DualBytes dual_bytes(const Dual& spec, std::int64_t elems);

}  // namespace actzip
