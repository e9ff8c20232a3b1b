#include "layers/fused_activation.hpp"

#include <ATen/ops/empty_like.h>

#include <optional>

#include "base/convert.hpp"
#include "base/run_of_memory.hpp"

namespace actzip::torch::layers {

namespace {

/// Of a dense tensor; none otherwise.
std::optional<Elements> elements_of(const at::Tensor& tensor) {
  const auto dtype = to_dtype(tensor.scalar_type());
  if (!dtype || !tensor.is_non_overlapping_and_dense() || !is_aligned(tensor)) return std::nullopt;
  return Elements{tensor.numel(), *dtype};
}

}  // namespace

bool ActivatingEncoder::encode(const CodecSpec& spec, ByteSpan dst, Seed seed, const Stream& stream) {
  const auto elements = elements_of(input_);
  if (!elements || !can_fuse_activation(spec, *elements, stream.device())) return false;
  result = at::empty_like(input_, input_.options().requires_grad(false));
  encode_activated(spec, activation_, *elements, input_.const_data_ptr(), result.mutable_data_ptr(), dst, seed, stream);
  return true;
}

}  // namespace actzip::torch::layers
