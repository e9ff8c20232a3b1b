// Complex tensors for the core, which knows real numbers alone: a last dimension of two, the real and the imaginary
// part, as torch's view_as_real() has it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "actzip/types.hpp"
#include "actzip/use.hpp"
#include "actzip/view.hpp"
#include "base/convert.hpp"

namespace actzip::torch {

/// Of the two parts; nothing for a type that is not complex.
inline std::optional<DType> part_dtype(c10::ScalarType type) {
  return c10::isComplexType(type) ? to_dtype(c10::toRealValueType(type)) : std::nullopt;
}

/// Whether a gradient needs no more of a complex tensor than of its parts: it is linear in it, or its relative error is
/// that of the larger part. Curves that are bounded for real numbers have poles for complex ones, and the like.
inline bool takes_pairs(Use use) {
  switch (use) {
    case Use::unknown:
    case Use::foreign:
    case Use::shape:
    case Use::linear_input:
    case Use::linear_weight:
    case Use::batched_operand:
    case Use::vector_operand:
    case Use::factor:
    case Use::power_base:
    case Use::quotient:
    case Use::exponential_result: return true;
    default: return false;
  }
}

/// The parts of a complex tensor of that shape. Requires a rank below kMaxRank.
inline Shape with_pairs(Shape shape) {
  for (std::size_t d = 0; d < static_cast<std::size_t>(shape.rank); ++d) shape.strides[d] *= 2;
  shape.sizes[static_cast<std::size_t>(shape.rank)] = 2;
  shape.strides[static_cast<std::size_t>(shape.rank)] = 1;
  ++shape.rank;
  return shape;
}

/// The complex tensor of such parts.
inline Shape without_pairs(Shape shape) {
  --shape.rank;
  shape.sizes[static_cast<std::size_t>(shape.rank)] = shape.strides[static_cast<std::size_t>(shape.rank)] = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(shape.rank); ++d) shape.strides[d] /= 2;
  return shape;
}

}  // namespace actzip::torch
