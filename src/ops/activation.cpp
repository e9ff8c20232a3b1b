#include "actzip/activation.hpp"

#include <string_view>
#include <variant>

#include "ops/backend.hpp"
#include "ops/fused.hpp"

namespace actzip {

namespace {

using codec::fail;
using ops::check_pointer;

constexpr std::int64_t kElemStep = 8;

const Rotated& check_elements(std::string_view call, const CodecSpec& spec, const Elements& elements,
                              const Stream& stream) {
  if (!can_fuse_activation(spec, elements, stream.device())) {
    fail(ErrorCode::invalid_spec,
         "{}: {} elements of {} as '{}' (allowed: rotated in groups of {} without a mask plane, on CUDA, multiples of "
         "{} elements of f32, f16 or bf16)",
         call, elements.count, to_string(elements.dtype), to_string(spec), ops::kGroup, kElemStep);
  }
  return std::get<Rotated>(spec);
}

ops::MaskedGradientJob masked_job(std::string_view call, const Elements& elements, ConstByteSpan mask,
                                  const void* y_gradient, void* x_gradient, const Stream& stream) {
  if (!can_fuse_mask(elements, stream.device())) {
    fail(ErrorCode::invalid_spec, "{}: {} elements of {} (allowed: at least one of f32, f16 or bf16, on CUDA)", call,
         elements.count, to_string(elements.dtype));
  }
  ops::check_bytes(call, "mask", mask, encoded_bytes(Mask{}, elements.dtype, elements.count));
  check_pointer(call, "the gradient of y", y_gradient);
  check_pointer(call, "the gradient of x", x_gradient);
  return {elements, mask.data, y_gradient, x_gradient, &stream};
}

}  // namespace

bool can_fuse_activation(const CodecSpec& spec, const Elements& elements, Device device) {
  return ops::takes(spec, elements.dtype, device) && elements.count > 0 && elements.count % kElemStep == 0;
}

void encode_activated(const CodecSpec& spec, Activation activation, const Elements& elements, const void* x, void* y,
                      ByteSpan dst, Seed seed, const Stream& stream) {
  constexpr std::string_view kCall = "encode_activated";
  const Rotated& rotated = check_elements(kCall, spec, elements, stream);
  check_pointer(kCall, "y", y);
  cuda::encode_activated(rotated, activation,
                         ops::encode_run(kCall, rotated, elements.dtype, elements.count, x, dst, seed, stream), y);
}

void activation_backward(const CodecSpec& spec, Activation activation, const Elements& elements, ConstByteSpan src,
                         const void* y_gradient, void* x_gradient, Seed seed, const Stream& stream) {
  constexpr std::string_view kCall = "activation_backward";
  const Rotated& rotated = check_elements(kCall, spec, elements, stream);
  check_pointer(kCall, "the gradient of y", y_gradient);
  cuda::activation_backward(
      rotated, activation,
      ops::decode_run(kCall, rotated, elements.dtype, elements.count, src, x_gradient, seed, stream), y_gradient);
}

void product_backward(const CodecSpec& spec, const Elements& elements, ConstByteSpan src, float scale,
                      const void* y_gradient, void* x_gradient, Seed seed, const Stream& stream) {
  constexpr std::string_view kCall = "product_backward";
  const Rotated& rotated = check_elements(kCall, spec, elements, stream);
  check_pointer(kCall, "the gradient of y", y_gradient);
  cuda::product_backward(rotated, scale,
                         ops::decode_run(kCall, rotated, elements.dtype, elements.count, src, x_gradient, seed, stream),
                         y_gradient);
}

bool can_fuse_mask(const Elements& elements, Device device) {
  return device.kind == DeviceKind::cuda && cuda::has_fused_operators() && ops::is_float(elements.dtype) &&
         elements.count > 0;
}

void relu_backward(const Elements& elements, ConstByteSpan mask, const void* y_gradient, void* x_gradient,
                   const Stream& stream) {
  cuda::relu_backward(masked_job("relu_backward", elements, mask, y_gradient, x_gradient, stream));
}

void dropout_backward(const Elements& elements, ConstByteSpan mask, float factor, const void* y_gradient,
                      void* x_gradient, const Stream& stream) {
  cuda::dropout_backward(masked_job("dropout_backward", elements, mask, y_gradient, x_gradient, stream), factor);
}

}  // namespace actzip
