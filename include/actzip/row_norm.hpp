// The result of a norm over rows (layer norm, RMS norm), computed in the pass over memory that decodes its encoded
// input.
//
// Tensors are rows of channels as in batch_norm.hpp. The rules there on memory, streams and supported arguments apply.
#pragma once

#include "actzip/batch_norm.hpp"

namespace actzip {

/// The norm y = (x - mean) * inverse_deviation * weight + bias. Everything lies on the device; pointers are multiples
/// of 16.
struct RowNorm {
  const float* mean = nullptr;               ///< one per row; null for an RMS norm
  const float* inverse_deviation = nullptr;  ///< one per row; not null
  const void* weight = nullptr;              ///< one per channel, or null; f32, or the type of the result
  const void* bias = nullptr;                ///< the same
  DType parameters = DType::f32;             ///< type of weight and bias
};

/// Writes y, of type shape.dtype, which need not be the type that was encoded. Throws Error as decode() does, and
/// Error(invalid_spec) where can_fuse_batch_norm() returns false.
void decode_row_normalized(const CodecSpec& spec, const ChannelRows& shape, ConstByteSpan src, const RowNorm& norm,
                           void* y, Seed seed, const Stream& stream);

}  // namespace actzip
