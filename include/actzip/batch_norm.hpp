// Batch norm that encodes its input in the pass that normalises it, and decodes it in the pass that computes the
// gradient: fewer passes over memory than plain training takes, where separate encode() and decode() calls would take
// more.
//
// Tensors are dense rows of channels, with the channels next to each other: images in channels-last order, or a matrix.
// Everything lies on the stream's device. The functions allocate nothing and do not synchronise.
//
// The encoded values are normalised: (x - mean) / deviation, rounded to their type. A code spreads its error evenly
// over the channels of a group, so all channels should have the same size: none then gets more error than it can bear.
// The bytes are those that encode() makes of the normalised values with the same seed. batch_norm_backward() also
// accepts what encode() made of the input itself.
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

/// Whether the functions below support these arguments: `rotated` in groups of 256 without a mask plane, a multiple of
/// 8 channels up to 32,768, less than 2^32 elements of f32, f16 or bf16, on CUDA.
bool can_fuse_batch_norm(const CodecSpec& spec, const ChannelRows& shape, Device device);

/// What a batch norm does to its channels: `channels` f32 numbers each. Each pointer is a multiple of 16.
struct Normalization {
  const float* weight = nullptr;
  const float* bias = nullptr;
  const float* mean = nullptr;
  const float* inverse_deviation = nullptr;

  Normalization() = default;
  /// Points into the 4 * channels numbers that measure_batch() writes. The caller keeps them as long as the encoding.
  Normalization(const float* data, std::int64_t channels)
      : weight(data), bias(data + channels), mean(data + 2 * channels), inverse_deviation(data + 3 * channels) {}
};

/// Parameters and running statistics: `channels` f32 numbers each, on the device; any pointer may be null.
struct BatchNormParameters {
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* running_mean = nullptr;
  float* running_variance = nullptr;
  float momentum = 0.0F;  ///< share of this batch in the running statistics
  float epsilon = 0.0F;
};

/// Size of the workspace of measure_batch() and batch_norm_backward(), which starts at a multiple of 16.
std::size_t batch_norm_workspace_bytes(const ChannelRows& shape);

/// Computes mean and variance of the channels of x, writes the numbers of a Normalization to `norm`, and updates the
/// running statistics. The order in which rows are summed depends on the shape alone, so results are reproducible.
/// Throws Error(invalid_spec) where can_fuse_batch_norm() returns false.
void measure_batch(const CodecSpec& spec, const ChannelRows& shape, const void* x,
                   const BatchNormParameters& parameters, float* norm, ByteSpan workspace, const Stream& stream);

/// Bytes of one bit per element, as the codec `mask` stores them.
std::size_t sign_plane_bytes(const ChannelRows& shape);

/// Writes y = (x - mean) / deviation * weight + bias, and the encoding of the normalised values into `dst`, of
/// encoded_bytes(). If `positive` is not null, it receives the plane of y > 0, of sign_plane_bytes(). x and y may be
/// the same memory. Throws Error as encode() does, and Error(invalid_spec) where can_fuse_batch_norm() returns false.
void encode_normalized(const CodecSpec& spec, const ChannelRows& shape, const void* x, const Normalization& norm,
                       void* y, ByteSpan dst, std::byte* positive, Seed seed, const Stream& stream);

/// Writes y again, computed from the encoding. If `positive` is not null, y is 0 where its bit is 0: the result of a
/// ReLU behind the norm. Throws Error as decode() does, and Error(invalid_spec) where can_fuse_batch_norm() returns
/// false.
void decode_normalized(const CodecSpec& spec, const ChannelRows& shape, ConstByteSpan src, const Normalization& norm,
                       void* y, const std::byte* positive, Seed seed, const Stream& stream);

/// Which values the bytes encode.
enum class NormValues : std::uint8_t {
  normal,  ///< (x - mean) / deviation, as encode_normalized() makes them
  input,   ///< x itself, as encode() makes them of the input
};

/// The gradients of a batch norm. If `positive` is not null, it is a multiple of 16, and y_gradient counts only where its
/// bit is 1.
struct BatchNormGradients {
  const void* y = nullptr;
  void* x = nullptr;
  float* weight = nullptr;  ///< `channels` numbers; not null
  float* bias = nullptr;    ///< the same
};

/// Writes the gradients of x, weight and bias, with reproducible results. Ignores norm.bias; a null norm.weight counts
/// as 1. Throws as decode_normalized() does.
void batch_norm_backward(const CodecSpec& spec, const ChannelRows& shape, ConstByteSpan src, NormValues values,
                         const Normalization& norm, const BatchNormGradients& gradients, const std::byte* positive,
                         ByteSpan workspace, Seed seed, const Stream& stream);

}  // namespace actzip
