#include "base/batch_norm_kernels.hpp"

#include <ATen/ops/empty.h>

#include <utility>

#include "base/convert.hpp"
#include "base/memory.hpp"
#include "base/run_of_memory.hpp"

namespace actzip::torch {

ChannelRows rows_of(const at::Tensor& tensor) {
  const auto dtype = to_dtype(tensor.scalar_type());
  const bool fits = dtype && tensor.dim() >= 2 && tensor.size(1) > 0 && tensor.stride(1) == 1 &&
                    tensor.is_non_overlapping_and_dense() && is_aligned(tensor);
  if (!fits) return {};
  return {tensor.numel() / tensor.size(1), tensor.size(1), *dtype};
}

bool are_plain(const at::Tensor& numbers, const at::Tensor& like) {
  return !numbers.defined() || (numbers.scalar_type() == at::kFloat && numbers.is_contiguous() && is_aligned(numbers) &&
                                numbers.device() == like.device());
}

const float* floats(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr; }

float* mutable_floats(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<float>() : nullptr;
}

ByteSpan bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes(), to_device(tensor.device())};
}

at::Tensor workspace_for(const ChannelRows& shape, const at::TensorOptions& options) {
  const auto bytes = static_cast<std::int64_t>(batch_norm_workspace_bytes(shape));
  return at::empty({bytes}, options.dtype(at::kByte));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients_of(const BatchNormBackward& job) {
  const at::TensorOptions options = job.for_input.options();
  const at::Tensor workspace = workspace_for(job.shape, options);
  at::Tensor for_weight = at::empty({job.shape.channels}, options.dtype(at::kFloat));
  at::Tensor for_bias = at::empty({job.shape.channels}, options.dtype(at::kFloat));
  batch_norm_backward(job.input.spec, job.shape, job.input.bytes, job.values, job.norm,
                      {.y = job.gradient.const_data_ptr(),
                       .x = job.for_input.mutable_data_ptr(),
                       .weight = mutable_floats(for_weight),
                       .bias = mutable_floats(for_bias)},
                      job.positive, bytes_of(workspace), job.input.seed, current_stream(job.for_input.device()));
  return {job.for_input, std::move(for_weight), std::move(for_bias)};
}

}  // namespace actzip::torch
