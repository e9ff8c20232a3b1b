// The spec of `dual` for a tensor: codecs see a run of elements, and this one has to know the maps in it.
#pragma once

#include <optional>

#include "actzip/spec.hpp"
#include "actzip/view.hpp"

namespace actzip {

/// `parameters` with size and channels of `shape`, which is N,C,L or N,C,H,W or N,C,D,H,W with the dimensions in this
/// order or with C last in memory, dense or not. None if it has no extent behind N and C, so that every average would
/// be of one element; if dimensions lie in another order; if some are expanded; or for other ranks.
std::optional<Dual> dual_spec(const Dual& parameters, const Shape& shape);

}  // namespace actzip
