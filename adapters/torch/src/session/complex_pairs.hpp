// Describes complex tensors to the core, which supports real numbers only: as a last dimension of two, the real and the
// imaginary part, like torch's view_as_real().
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "actzip/types.hpp"
#include "actzip/use.hpp"
#include "actzip/view.hpp"
#include "base/convert.hpp"

namespace actzip::torch {

/// The type of the two parts; nothing if `type` is not complex.
inline std::optional<DType> part_dtype(c10::ScalarType type) {
  return c10::isComplexType(type) ? to_dtype(c10::toRealValueType(type)) : std::nullopt;
}

/// Whether it suffices for the gradient to keep real and imaginary part separately: the gradient is linear in the
/// tensor, or its relative error is at most that of the larger part. Not so, for instance, for functions that are
/// bounded for real numbers but have poles for complex ones.
inline bool takes_pairs(Use use) {
  switch (use) {
    case Use::unknown:
    case Use::foreign:
    case Use::checkpoint_input:
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

/// Returns the shape of the parts of a complex tensor. Requires a rank below kMaxRank.
inline Shape with_pairs(Shape shape) {
  for (std::size_t d = 0; d < static_cast<std::size_t>(shape.rank); ++d) shape.strides[d] *= 2;
  shape.sizes[static_cast<std::size_t>(shape.rank)] = 2;
  shape.strides[static_cast<std::size_t>(shape.rank)] = 1;
  ++shape.rank;
  return shape;
}

/// Returns the shape of the complex tensor of such parts.
inline Shape without_pairs(Shape shape) {
  --shape.rank;
  shape.sizes[static_cast<std::size_t>(shape.rank)] = shape.strides[static_cast<std::size_t>(shape.rank)] = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(shape.rank); ++d) shape.strides[d] /= 2;
  return shape;
}

}  // namespace actzip::torch
