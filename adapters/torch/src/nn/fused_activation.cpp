#include "fused_activation.hpp"

#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>

#include "convert.hpp"
#include "memory.hpp"
#include "run_of_memory.hpp"

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

std::optional<at::Tensor> fused_gradient(Activation activation, const Packed& saved, const at::Tensor& gradient) {
  if (!saved.is_encoded() || !gradient.is_cuda()) return std::nullopt;
  saved.check_version();
  const c10::OptionalDeviceGuard guard(gradient.device());
  const Encoding encoding = saved.encoding();
  at::Tensor result = saved.empty_restored();
  const auto elements = elements_of(result);
  const bool fits = elements && encoding.segments.total_bits == 0 &&
                    can_fuse_activation(encoding.spec, *elements, to_device(result.device()));
  if (!fits) return std::nullopt;
  const at::Tensor above = laid_out(gradient, result);
  activation_backward(encoding.spec, activation, *elements, encoding.bytes, above.const_data_ptr(),
                      result.mutable_data_ptr(), encoding.seed, current_stream(result.device()));
  return result;
}

}  // namespace actzip::torch::layers
