// Calls the kernels of actzip/batch_norm.hpp with torch's tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <tuple>

#include "actzip/batch_norm.hpp"
#include "actzip/session.hpp"

namespace actzip::torch {

/// Returns the tensor as rows of channels, if channels are adjacent in memory and there are no gaps; the order of the
/// rows does not matter. No rows for any other tensor.
ChannelRows rows_of(const at::Tensor& tensor);

/// Whether `numbers` is undefined, or contiguous and aligned f32 on the device of `like`, as kernels require.
bool are_plain(const at::Tensor& numbers, const at::Tensor& like);

/// Null if the tensor is undefined.
const float* floats(const at::Tensor& tensor);
float* mutable_floats(const at::Tensor& tensor);

ByteSpan bytes_of(const at::Tensor& tensor);
at::Tensor workspace_for(const ChannelRows& shape, const at::TensorOptions& options);

/// The arguments of batch_norm_backward().
struct BatchNormBackward {
  const Encoding& input;
  NormValues values;
  const ChannelRows& shape;
  const Normalization& norm;
  const std::byte* positive;  ///< the mask of a ReLU that follows, or null
  const at::Tensor& gradient;
  const at::Tensor& for_input;  ///< to be written, in the same memory order
};

/// Returns the gradients of input, weight and bias, computed on the current stream.
std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients_of(const BatchNormBackward& job);

}  // namespace actzip::torch
