// The two parts into which the codec `dual` splits a tensor, for analysis.
//
//   const auto parts = actzip::torch::take_apart(activation, {.bits = actzip::Bits(2)});
//   double share = parts.low.square().sum().item<double>() / activation.square().sum().item<double>();
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "actzip/spec.hpp"

namespace actzip::torch {

/// The tensors have the original's shape and lie on its device.
struct Parts {
  at::Tensor low;              ///< f32: each element is the stored average of its block
  at::Tensor high;             ///< f32: the tensor minus the low part, before encoding
  at::Tensor restored;         ///< in the tensor's type: what backward would get
  std::size_t low_bytes = 0;   ///< of the averages
  std::size_t high_bytes = 0;  ///< of the codes and their statistics
};

/// Encodes `tensor` with `parameters` and block sizes that suit its feature maps, and decodes both the whole and the
/// low part. Throws Error(invalid_view) if dual_spec() finds no feature maps in it, and Error as encode() does.
Parts take_apart(const at::Tensor& tensor, const Dual& parameters, std::uint64_t seed = 0);

}  // namespace actzip::torch
