// Tensors in the form that the fused kernels require: memory that begins at a multiple of 16, in a given order.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>

#include <cstddef>
#include <cstdint>

namespace actzip::torch {

inline bool is_aligned(const at::Tensor& tensor) {
  constexpr std::size_t kAlignment = 16;
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % kAlignment == 0;
}

/// Returns `tensor` in the type and memory order that `options` and `strides`, or `like`, prescribe; a copy if it
/// differs or is not aligned.
inline at::Tensor laid_out(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides,
                           const at::TensorOptions& options) {
  if (tensor.strides() == strides && tensor.dtype() == options.dtype() && is_aligned(tensor)) return tensor;
  return at::empty_strided(sizes, strides, options).copy_(tensor);
}
inline at::Tensor laid_out(const at::Tensor& tensor, const at::Tensor& like) {
  return laid_out(tensor, like.sizes(), like.strides(), like.options());
}

}  // namespace actzip::torch
