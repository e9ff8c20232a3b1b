// Conversions from Paddle's types to the core's.
#pragma once

#include <paddle/phi/core/dense_tensor.h>

#include <cstddef>
#include <optional>

#include "actzip/types.hpp"
#include "actzip/view.hpp"

namespace actzip::paddle_adapter {

/// Returns nothing for a type that the core does not support: complex, quantised, 8-bit floats.
inline std::optional<DType> to_dtype(phi::DataType type) {
  switch (type) {
    case phi::DataType::FLOAT32: return DType::f32;
    case phi::DataType::FLOAT16: return DType::f16;
    case phi::DataType::BFLOAT16: return DType::bf16;
    case phi::DataType::FLOAT64: return DType::f64;
    case phi::DataType::BOOL: return DType::boolean;
    case phi::DataType::UINT8: return DType::u8;
    case phi::DataType::INT8: return DType::i8;
    case phi::DataType::INT16: return DType::i16;
    case phi::DataType::INT32: return DType::i32;
    case phi::DataType::INT64: return DType::i64;
    default: return std::nullopt;
  }
}

/// Requires a rank of at most kMaxRank.
inline Shape to_shape(const phi::DenseTensorMeta& meta) {
  Shape shape;
  shape.rank = meta.dims.size();
  for (int d = 0; d < shape.rank; ++d) {
    shape.sizes[static_cast<std::size_t>(d)] = meta.dims[d];
    shape.strides[static_cast<std::size_t>(d)] = meta.strides[d];
  }
  return shape;
}

/// Returns the number of elements from the first to the last, gaps included. Requires a shape with elements.
inline std::int64_t span_elems(const Shape& shape) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(shape.rank); ++d) {
    last += (shape.sizes[d] - 1) * shape.strides[d];
  }
  return last + 1;
}

}  // namespace actzip::paddle_adapter
