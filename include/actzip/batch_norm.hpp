// Batch norm whose input is encoded while it is normalised, and decoded while its gradient is made: fewer passes over
// memory than plain training takes, where encode() and decode() beside it would take more.
//
// Tensors are rows of channels, dense, channels side by side: images in channels-last order, or a matrix. Everything
// lies on the stream's device; nothing is allocated, nothing waits.
//
// What is encoded here are normal values, (x - mean) / deviation, rounded to their type: a code spreads its error
// evenly over the channels of a group, and so none of them has more of it than its size bears. The bytes are those that
// encode() makes of the normal values with the same seed. Backward also takes what encode() made of the input itself.
#pragma once

#include <cstddef>
#include <cstdint>

#include "actzip/spec.hpp"
#include "actzip/stream.hpp"
#include "actzip/types.hpp"
#include "actzip/view.hpp"

namespace actzip {

struct ChannelRows {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  DType dtype = DType::f32;  ///< of input, output and their gradients

  [[nodiscard]] std::int64_t elems() const noexcept { return rows * channels; }
};

/// Whether the functions below take these. They are for `rotated` in groups of 256 without a mask plane, for multiples
/// of 8 channels up to 32,768, for less than 2^32 elements of f32, f16 or bf16, and for CUDA.
bool can_fuse_batch_norm(const CodecSpec& spec, const ChannelRows& shape, Device device);

/// What a batch norm does to its channels: `channels` f32 numbers each, from multiples of 16 on.
struct Normalization {
  const float* weight = nullptr;
  const float* bias = nullptr;
  const float* mean = nullptr;
  const float* inverse_deviation = nullptr;

  Normalization() = default;
  /// 4 * channels numbers as measure_batch() writes them, which the caller keeps as long as the encoding.
  Normalization(const float* data, std::int64_t channels)
      : weight(data), bias(data + channels), mean(data + 2 * channels), inverse_deviation(data + 3 * channels) {}
};

/// `channels` f32 numbers each, on the device; any may be null.
struct BatchNormParameters {
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* running_mean = nullptr;
  float* running_variance = nullptr;
  float momentum = 0.0F;  ///< share of this batch in the running statistics
  float epsilon = 0.0F;
};

/// What measure_batch() and batch_norm_backward() need. The memory is a multiple of 16.
std::size_t batch_norm_workspace_bytes(const ChannelRows& shape);

/// Mean and variance of the channels of x: writes the numbers of a Normalization to `norm`, and brings the running
/// statistics up to date. Sums over rows are made in an order that the shape alone decides: the same numbers every
/// time. Throws Error(invalid_spec) where can_fuse_batch_norm() says no.
void measure_batch(const CodecSpec& spec, const ChannelRows& shape, const void* x,
                   const BatchNormParameters& parameters, float* norm, ByteSpan workspace, const Stream& stream);

/// Bytes of one bit an element, as the codec `mask` keeps them.
std::size_t sign_plane_bytes(const ChannelRows& shape);

/// y = (x - mean) / deviation * weight + bias, and the encoding of the normal values in `dst`, of encoded_bytes(). If
/// `positive` is not null it becomes the plane of y > 0, of sign_plane_bytes(). x and y may be the same. Throws Error
/// as encode() does, and Error(invalid_spec) where can_fuse_batch_norm() says no.
void encode_normalized(const CodecSpec& spec, const ChannelRows& shape, const void* x, const Normalization& norm,
                       void* y, ByteSpan dst, std::byte* positive, Seed seed, const Stream& stream);

/// y again, from the encoding; 0 where a bit of `positive` is 0, if it is not null: what a ReLU behind it gave.
void decode_normalized(const CodecSpec& spec, const ChannelRows& shape, ConstByteSpan src, const Normalization& norm,
                       void* y, const std::byte* positive, Seed seed, const Stream& stream);

/// What the bytes stand for.
enum class NormValues : std::uint8_t {
  normal,  ///< (x - mean) / deviation, as encode_normalized() makes them
  input,   ///< x, as encode() makes them of the input
};

/// The gradients of a batch norm; y_gradient counts only where `positive` has a bit, if it is not null.
struct BatchNormGradients {
  const void* y = nullptr;
  void* x = nullptr;
  float* weight = nullptr;  ///< `channels` numbers; not null
  float* bias = nullptr;    ///< the same
};

/// Fills the gradients of x, weight and bias; the same numbers every time. Of `norm` the bias is not looked at, and a
/// weight that is null counts as 1.
void batch_norm_backward(const CodecSpec& spec, const ChannelRows& shape, ConstByteSpan src, NormValues values,
                         const Normalization& norm, const BatchNormGradients& gradients, const std::byte* positive,
                         ByteSpan workspace, Seed seed, const Stream& stream);

}  // namespace actzip
