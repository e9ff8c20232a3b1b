// The result of a norm over rows (layer norm, RMS norm), made while its encoded input is decoded: in one pass over
// memory.
//
// Tensors are rows of channels as in batch_norm.hpp; the same holds for memory, streams and what is taken.
#pragma once

#include "actzip/batch_norm.hpp"

namespace actzip {

/// y = (x - mean) * inverse_deviation * weight + bias. Everything lies on the device; pointers are multiples of 16.
struct RowNorm {
  const float* mean = nullptr;               ///< of each row; null for an RMS norm
  const float* inverse_deviation = nullptr;  ///< of each row; not null
  const void* weight = nullptr;              ///< of each channel, or null; f32, or the type of the result
  const void* bias = nullptr;                ///< the same
  DType parameters = DType::f32;             ///< their type
};

/// Writes y, of shape.dtype, which need not be the type that was encoded.
/// Throws Error as decode() does, and Error(invalid_spec) where can_fuse_batch_norm() says no.
void decode_row_normalized(const CodecSpec& spec, const ChannelRows& shape, ConstByteSpan src, const RowNorm& norm,
                           void* y, Seed seed, const Stream& stream);

}  // namespace actzip
