// What `dual` makes of a tensor: the two parts that it keeps, to be looked at.
//
//   const auto parts = actzip::torch::take_apart(activation, {.bits = actzip::Bits(2)});
//   double share = parts.low.square().sum().item<double>() / activation.square().sum().item<double>();
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "actzip/spec.hpp"

namespace actzip::torch {

/// Shaped as the tensor was, and on its device.
struct Parts {
  at::Tensor low;              ///< f32: every element the average of its block, as it is kept
  at::Tensor high;             ///< f32: the tensor less the low part, before it is coded
  at::Tensor restored;         ///< of the tensor's type: what backward gets
  std::size_t low_bytes = 0;   ///< of the averages
  std::size_t high_bytes = 0;  ///< of codes and their statistics
};

/// Encodes `tensor` by `parameters` with the size of its maps, and decodes the whole and the low part.
/// Throws Error: invalid_view if dual_spec() knows no maps in it, and as encode() does.
Parts take_apart(const at::Tensor& tensor, const Dual& parameters, std::uint64_t seed = 0);

}  // namespace actzip::torch
