// The kernels of actzip/batch_norm.hpp, called with torch's tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <tuple>

#include "actzip/batch_norm.hpp"
#include "actzip/session.hpp"

namespace actzip::torch {

/// Channels side by side, nothing between them; in which order the rows lie does not matter. No rows for any other
/// tensor.
ChannelRows rows_of(const at::Tensor& tensor);

/// Whether they are f32 numbers as kernels take them, on the device of `like`, or nothing.
bool are_plain(const at::Tensor& numbers, const at::Tensor& like);

/// Null for nothing.
const float* floats(const at::Tensor& tensor);
float* mutable_floats(const at::Tensor& tensor);

ByteSpan bytes_of(const at::Tensor& tensor);
at::Tensor workspace_for(const ChannelRows& shape, const at::TensorOptions& options);

/// What batch_norm_backward() needs.
struct BatchNormBackward {
  const Encoding& input;
  NormValues values;
  const ChannelRows& shape;
  const Normalization& norm;
  const std::byte* positive;  ///< the mask of a ReLU behind it, or null
  const at::Tensor& gradient;
  const at::Tensor& for_input;  ///< to be filled, in the same memory order
};

/// Gradients of input, weight and bias, on the current stream.
std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients_of(const BatchNormBackward& job);

}  // namespace actzip::torch
