// Tensors in host memory: conversions between values and stored elements, and an independent oracle of memory order.
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

/// A strided tensor with its memory from the first element to the last, including gaps.
struct Tensor {
  DType dtype = DType::f32;
  Shape shape;
  Bytes memory;
};

bool is_floating(DType dtype);

/// Converts values to elements of `dtype`. Rounds to nearest even; an overflow becomes an infinity.
Bytes to_bytes(DType dtype, std::span<const double> values);
/// Converts elements of `dtype` to values, exactly.
std::vector<double> to_values(DType dtype, std::span<const std::byte> bytes);
/// Returns the values after a round trip through `dtype`.
std::vector<double> stored(DType dtype, std::span<const double> values);

/// The greatest finite number of a floating type.
double largest(DType dtype);
/// The least positive number of a floating type.
double least(DType dtype);
/// The unit roundoff of a floating type's normal numbers.
double roundoff(DType dtype);

Shape strided(std::initializer_list<std::int64_t> sizes, std::initializer_list<std::int64_t> strides);
Shape line(std::int64_t elems);

/// Returns the number of elements from the first to the last address of a shape, inclusive.
std::int64_t extent(const Shape& shape);

/// Returns the offsets of the unique elements in memory order, by sorting the dimensions and counting. This is the
/// oracle: a second implementation of section 1 of format.md.
std::vector<std::int64_t> memory_order(const Shape& shape);

/// Returns the offsets of all elements in the order of their indices, including expanded dimensions.
std::vector<std::int64_t> index_order(const Shape& shape);

/// Returns the elements at `offsets`, concatenated.
Bytes gather(DType dtype, std::span<const std::byte> memory, std::span<const std::int64_t> offsets);

/// Makes a dense tensor of one dimension.
Tensor dense(DType dtype, std::span<const double> values);
Tensor dense(DType dtype, Bytes elements);

}  // namespace actzip::testing
