// The mask for an operator whose gradient only needs to know whether a value lies between two limits.
#pragma once

#include <limits>
#include <optional>

#include "actzip/spec.hpp"
#include "actzip/types.hpp"

namespace actzip {

/// The gradient passes where lower < x < upper. An infinite limit excludes nothing: an infinite value lies inside.
struct Interval {
  float lower = 0.0F;
  float upper = std::numeric_limits<float>::infinity();
  MaskSide nan = MaskSide::on;  ///< `on`: the gradient passes where x is NaN
};

/// Returns a mask that decodes to two numbers of `dtype`, one on either side of the limits. Returns nothing if no such
/// mask is read alike by every kernel: a limit is not a number of that type (some kernels round it to the type first,
/// and so disagree about the value next to it), or no number of the type lies inside.
std::optional<Mask> interval_mask(const Interval& interval, DType dtype);

}  // namespace actzip
