// Conversions from torch's types to the core's.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Stream.h>
#include <c10/core/TensorImpl.h>

#include <optional>

#include "actzip/stream.hpp"
#include "actzip/types.hpp"
#include "actzip/view.hpp"

namespace actzip::torch {

/// Returns nothing for a type that the core does not support: complex, quantised, 8-bit floats.
inline std::optional<DType> to_dtype(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float: return DType::f32;
    case c10::ScalarType::Half: return DType::f16;
    case c10::ScalarType::BFloat16: return DType::bf16;
    case c10::ScalarType::Double: return DType::f64;
    case c10::ScalarType::Bool: return DType::boolean;
    case c10::ScalarType::Byte: return DType::u8;
    case c10::ScalarType::Char: return DType::i8;
    case c10::ScalarType::Short: return DType::i16;
    case c10::ScalarType::Int: return DType::i32;
    case c10::ScalarType::Long: return DType::i64;
    default: return std::nullopt;
  }
}

/// Whether the tensor stores its sizes as plain numbers. Nested tensors, subclasses that dispatch to Python and traced
/// tensors do not: asking them for sizes runs other code, or throws.
inline bool has_plain_sizes(const c10::TensorImpl& tensor) {
  return !tensor.key_set().has(c10::DispatchKey::Python) && !tensor.is_nested() && !tensor.has_symbolic_sizes_strides();
}

/// Requires plain sizes and a rank of at most kMaxRank.
inline Shape to_shape(const at::Tensor& tensor) {
  Shape shape;
  shape.rank = static_cast<int>(tensor.dim());
  for (int d = 0; d < shape.rank; ++d) {
    shape.sizes[static_cast<std::size_t>(d)] = tensor.size(d);
    shape.strides[static_cast<std::size_t>(d)] = tensor.stride(d);
  }
  return shape;
}

inline Device to_device(c10::Device device) { return device.is_cuda() ? Device::cuda(device.index()) : Device::cpu(); }

}  // namespace actzip::torch
