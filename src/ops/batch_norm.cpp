#include "actzip/batch_norm.hpp"

#include <string_view>
#include <variant>

#include "actzip/codec.hpp"
#include "actzip/row_norm.hpp"
#include "ops/backend.hpp"
#include "ops/fused.hpp"
#include "ops/job.hpp"

namespace actzip {

namespace {

using codec::fail;
using ops::check_bytes;
using ops::check_pointer;

constexpr std::int64_t kChannelStep = 8;
constexpr std::int64_t kMostChannels = 32768;
constexpr std::int64_t kElemLimit = std::int64_t{1} << 32;

const Rotated& check_shape(std::string_view call, const CodecSpec& spec, const ChannelRows& shape,
                           const Stream& stream) {
  if (!can_fuse_batch_norm(spec, shape, stream.device())) {
    fail(ErrorCode::invalid_spec,
         "{}: {} rows of {} channels of {} as '{}' (allowed: rotated in groups of {} without a mask plane, on CUDA, "
         "multiples of {} channels up to {}, below {} elements of f32, f16 or bf16)",
         call, shape.rows, shape.channels, to_string(shape.dtype), to_string(spec), ops::kGroup, kChannelStep,
         kMostChannels, kElemLimit);
  }
  return std::get<Rotated>(spec);
}

codec::DecodeJob decode_job(std::string_view call, const CodecSpec& spec, const ChannelRows& shape, ConstByteSpan src,
                            void* dst, Seed seed, const Stream& stream) {
  return ops::decode_run(call, check_shape(call, spec, shape, stream), shape.dtype, shape.elems(), src, dst, seed,
                         stream);
}

/// Checks the numbers that every function needs.
void check_norm(std::string_view call, const Normalization& norm) {
  check_pointer(call, "the mean", norm.mean);
  check_pointer(call, "the inverse deviation", norm.inverse_deviation);
}

/// Checks the numbers that functions with an output need.
void check_affine(std::string_view call, const Normalization& norm) {
  check_norm(call, norm);
  check_pointer(call, "the weight", norm.weight);
  check_pointer(call, "the bias", norm.bias);
}

}  // namespace

bool can_fuse_batch_norm(const CodecSpec& spec, const ChannelRows& shape, Device device) {
  return ops::takes(spec, shape.dtype, device) && shape.rows > 0 && shape.channels > 0 &&
         shape.channels % kChannelStep == 0 && shape.channels <= kMostChannels &&
         shape.rows < kElemLimit / shape.channels;
}

std::size_t batch_norm_workspace_bytes(const ChannelRows& shape) {
  const std::int64_t numbers = ops::GradientNumbers::kCount * shape.channels + ops::ChannelSums(shape).floats();
  return static_cast<std::size_t>(numbers) * sizeof(float);
}

void measure_batch(const CodecSpec& spec, const ChannelRows& shape, const void* x,
                   const BatchNormParameters& parameters, float* norm, ByteSpan workspace, const Stream& stream) {
  constexpr std::string_view kCall = "measure_batch";
  (void)check_shape(kCall, spec, shape, stream);
  check_pointer(kCall, "x", x);
  check_pointer(kCall, "the normalization", norm);
  check_bytes(kCall, "workspace", workspace, batch_norm_workspace_bytes(shape));
  cuda::measure_batch(shape, x, parameters, norm, reinterpret_cast<float*>(workspace.data), stream);
}

std::size_t sign_plane_bytes(const ChannelRows& shape) { return encoded_bytes(Mask{}, shape.dtype, shape.elems()); }

void encode_normalized(const CodecSpec& spec, const ChannelRows& shape, const void* x, const Normalization& norm,
                       void* y, ByteSpan dst, std::byte* positive, Seed seed, const Stream& stream) {
  constexpr std::string_view kCall = "encode_normalized";
  const Rotated& rotated = check_shape(kCall, spec, shape, stream);
  check_pointer(kCall, "y", y);
  check_affine(kCall, norm);
  cuda::encode_normalized(rotated,
                          {.encode = ops::encode_run(kCall, rotated, shape.dtype, shape.elems(), x, dst, seed, stream),
                           .channels = shape.channels,
                           .norm = norm,
                           .y = y,
                           .positive = positive});
}

void decode_normalized(const CodecSpec& spec, const ChannelRows& shape, ConstByteSpan src, const Normalization& norm,
                       void* y, const std::byte* positive, Seed seed, const Stream& stream) {
  constexpr std::string_view kCall = "decode_normalized";
  const auto decode = decode_job(kCall, spec, shape, src, y, seed, stream);
  check_affine(kCall, norm);
  cuda::decode_normalized(std::get<Rotated>(spec), {decode, shape.channels, norm, positive});
}

void batch_norm_backward(const CodecSpec& spec, const ChannelRows& shape, ConstByteSpan src, NormValues values,
                         const Normalization& norm, const BatchNormGradients& gradients, const std::byte* positive,
                         ByteSpan workspace, Seed seed, const Stream& stream) {
  constexpr std::string_view kCall = "batch_norm_backward";
  const auto decode = decode_job(kCall, spec, shape, src, gradients.x, seed, stream);
  check_norm(kCall, norm);
  if (norm.weight != nullptr) check_pointer(kCall, "the weight", norm.weight);
  if (positive != nullptr) check_pointer(kCall, "the mask", positive);
  check_pointer(kCall, "the gradient of y", gradients.y);
  check_pointer(kCall, "the gradient of the weight", gradients.weight);
  check_pointer(kCall, "the gradient of the bias", gradients.bias);
  check_bytes(kCall, "workspace", workspace, batch_norm_workspace_bytes(shape));
  cuda::batch_norm_backward(std::get<Rotated>(spec), {decode, shape.channels, norm, positive}, values, gradients,
                            reinterpret_cast<float*>(workspace.data));
}

void decode_row_normalized(const CodecSpec& spec, const ChannelRows& shape, ConstByteSpan src, const RowNorm& norm,
                           void* y, Seed seed, const Stream& stream) {
  constexpr std::string_view kCall = "decode_row_normalized";
  const auto decode = decode_job(kCall, spec, shape, src, y, seed, stream);
  check_pointer(kCall, "the inverse deviation", norm.inverse_deviation);
  if (norm.parameters != DType::f32 && norm.parameters != shape.dtype) {
    fail(ErrorCode::unsupported_dtype, "{}: weight and bias of {} (allowed: f32, or {} as the result)", kCall,
         to_string(norm.parameters), to_string(shape.dtype));
  }
  for (const void* numbers : {norm.weight, norm.bias}) {
    if (numbers != nullptr) check_pointer(kCall, "weight or bias", numbers);
  }
  cuda::decode_row_normalized(std::get<Rotated>(spec), decode, shape.channels, norm);
}

}  // namespace actzip
