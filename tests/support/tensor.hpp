// Tensors in host memory: conversions between values and stored elements, and an order oracle of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "actzip/types.hpp"
#include "actzip/view.hpp"
#include "support/device_memory.hpp"

namespace actzip::testing {

/// A strided tensor with its memory, gaps included: from the first element to the last.
struct Tensor {
  DType dtype = DType::f32;
  Shape shape;
  Bytes memory;
};

bool is_floating(DType dtype);

/// Elements of `dtype` from values, rounded to nearest even, an overflow giving an infinity; and back, exactly.
Bytes to_bytes(DType dtype, std::span<const double> values);
std::vector<double> to_values(DType dtype, std::span<const std::byte> bytes);
/// What remains of values that are stored as `dtype`.
std::vector<double> stored(DType dtype, std::span<const double> values);

/// Greatest finite number and least positive one of a floating type; the unit roundoff of its normal numbers.
double largest(DType dtype);
double least(DType dtype);
double roundoff(DType dtype);

Shape strided(std::initializer_list<std::int64_t> sizes, std::initializer_list<std::int64_t> strides);
Shape line(std::int64_t elems);

/// Elements between the first and the last address of a shape, both included.
std::int64_t extent(const Shape& shape);

/// Offsets of the unique elements in memory order, by sorting the dimensions and counting: section 1 of format.md
/// written once more, as the oracle.
std::vector<std::int64_t> memory_order(const Shape& shape);

/// Offsets of all elements, in the order of their indices, expanded dimensions included.
std::vector<std::int64_t> index_order(const Shape& shape);

/// The elements at `offsets`, one behind the other.
Bytes gather(DType dtype, std::span<const std::byte> memory, std::span<const std::int64_t> offsets);

/// A dense tensor of one dimension.
Tensor dense(DType dtype, std::span<const double> values);
Tensor dense(DType dtype, Bytes elements);

}  // namespace actzip::testing
