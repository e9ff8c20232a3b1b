// The mask for an operator whose gradient asks for one thing: does a value lie between two limits?
#pragma once

#include <limits>
#include <optional>

#include "actzip/spec.hpp"
#include "actzip/types.hpp"

namespace actzip {

/// The gradient passes where lower < x < upper. An infinite limit is none: an infinite value lies inside.
struct Interval {
  float lower = 0.0F;
  float upper = std::numeric_limits<float>::infinity();
  MaskSide nan = MaskSide::on;  ///< `on`: the gradient passes where x is NaN
};

/// A mask that decodes to two numbers of `dtype`, one on either side of the limits.
/// None if there is no such mask that every kernel reads alike: a limit is no number of that type (some kernels round
/// it to the type first, so they disagree about the value next to it), or no number of the type lies inside.
std::optional<Mask> interval_mask(const Interval& interval, DType dtype);

}  // namespace actzip
