#include "support/tensor.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "math/float_bits.hpp"

namespace actzip::testing {
namespace {
template <class Stored>
void store(Bytes& bytes, std::size_t i, Stored value) {
  std::memcpy(bytes.data() + i * sizeof(Stored), &value, sizeof(Stored));
}

template <class Stored>
Stored load(std::span<const std::byte> bytes, std::size_t i) {
  Stored value;
  std::memcpy(&value, bytes.data() + i * sizeof(Stored), sizeof(Stored));
  return value;
}

void store_value(DType dtype, Bytes& bytes, std::size_t i, double value) {
  switch (dtype) {
    case DType::f32: return store(bytes, i, static_cast<float>(value));
    case DType::f16: return store(bytes, i, math::f32_to_f16(static_cast<float>(value)));
    case DType::bf16: return store(bytes, i, math::f32_to_bf16(static_cast<float>(value)));
    case DType::f64: return store(bytes, i, value);
    case DType::boolean: return store(bytes, i, static_cast<std::uint8_t>(value != 0.0));
    case DType::u8: return store(bytes, i, static_cast<std::uint8_t>(value));
    case DType::i8: return store(bytes, i, static_cast<std::int8_t>(value));
    case DType::i16: return store(bytes, i, static_cast<std::int16_t>(value));
    case DType::i32: return store(bytes, i, static_cast<std::int32_t>(value));
    case DType::i64: return store(bytes, i, static_cast<std::int64_t>(value));
  }
}

double load_value(DType dtype, std::span<const std::byte> bytes, std::size_t i) {
  switch (dtype) {
    case DType::f32: return load<float>(bytes, i);
    case DType::f16: return math::f16_to_f32(load<std::uint16_t>(bytes, i));
    case DType::bf16: return math::bf16_to_f32(load<std::uint16_t>(bytes, i));
    case DType::f64: return load<double>(bytes, i);
    case DType::boolean:
    case DType::u8: return load<std::uint8_t>(bytes, i);
    case DType::i8: return load<std::int8_t>(bytes, i);
    case DType::i16: return load<std::int16_t>(bytes, i);
    case DType::i32: return load<std::int32_t>(bytes, i);
    case DType::i64: return static_cast<double>(load<std::int64_t>(bytes, i));
  }
  throw std::logic_error("element type");
}

struct Dimension {
  std::int64_t size;
  std::int64_t stride;
};

std::vector<std::int64_t> count_through(const std::vector<Dimension>& dimensions) {
  std::vector<std::int64_t> offsets{0};
  for (const Dimension& d : dimensions) {
    std::vector<std::int64_t> next;
    next.reserve(offsets.size() * static_cast<std::size_t>(d.size));
    for (const std::int64_t offset : offsets) {
      for (std::int64_t i = 0; i < d.size; ++i) next.push_back(offset + i * d.stride);
    }
    offsets = std::move(next);
  }
  return offsets;
}

std::vector<Dimension> dimensions(const Shape& shape) {
  std::vector<Dimension> result;
  for (std::size_t d = 0; d < static_cast<std::size_t>(shape.rank); ++d) {
    result.push_back({shape.sizes[d], shape.strides[d]});
  }
  return result;
}
}  // namespace

bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f64;
}

Bytes to_bytes(DType dtype, std::span<const double> values) {
  Bytes bytes(values.size() * dtype_bytes(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) store_value(dtype, bytes, i, values[i]);
  return bytes;
}

std::vector<double> to_values(DType dtype, std::span<const std::byte> bytes) {
  std::vector<double> values(bytes.size() / dtype_bytes(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = load_value(dtype, bytes, i);
  return values;
}

std::vector<double> stored(DType dtype, std::span<const double> values) {
  return to_values(dtype, to_bytes(dtype, values));
}

double largest(DType dtype) {
  switch (dtype) {
    case DType::f32: return std::numeric_limits<float>::max();
    case DType::bf16: return 0x1.fep127;
    case DType::f16: return 65504.0;
    default: throw std::logic_error("largest() is for floating types that codecs compute with");
  }
}

double least(DType dtype) {
  switch (dtype) {
    case DType::f32: return 0x1p-149;
    case DType::bf16: return 0x1p-133;
    case DType::f16: return 0x1p-24;
    default: throw std::logic_error("least() is for floating types that codecs compute with");
  }
}

double roundoff(DType dtype) {
  switch (dtype) {
    case DType::f32: return 0x1p-24;
    case DType::bf16: return 0x1p-8;
    case DType::f16: return 0x1p-11;
    default: throw std::logic_error("roundoff() is for floating types that codecs compute with");
  }
}

Shape strided(std::initializer_list<std::int64_t> sizes, std::initializer_list<std::int64_t> strides) {
  Shape shape;
  shape.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), shape.sizes.begin());
  std::copy(strides.begin(), strides.end(), shape.strides.begin());
  return shape;
}

Shape line(std::int64_t elems) { return strided({elems}, {1}); }

std::int64_t extent(const Shape& shape) {
  std::int64_t last = 0;
  for (const Dimension& d : dimensions(shape)) {
    if (d.size == 0) return 0;
    last += (d.size - 1) * d.stride;
  }
  return last + 1;
}

std::vector<std::int64_t> memory_order(const Shape& shape) {
  std::vector<Dimension> kept;
  for (const Dimension& d : dimensions(shape)) {
    if (d.size == 0) return {};
    if (d.size != 1 && d.stride != 0) kept.push_back(d);
  }
  std::stable_sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.stride > b.stride; });
  return count_through(kept);
}

std::vector<std::int64_t> index_order(const Shape& shape) { return count_through(dimensions(shape)); }

Bytes gather(DType dtype, std::span<const std::byte> memory, std::span<const std::int64_t> offsets) {
  const std::size_t width = dtype_bytes(dtype);
  Bytes result(offsets.size() * width);
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    std::memcpy(result.data() + i * width, memory.data() + static_cast<std::size_t>(offsets[i]) * width, width);
  }
  return result;
}

Tensor dense(DType dtype, std::span<const double> values) { return dense(dtype, to_bytes(dtype, values)); }

Tensor dense(DType dtype, Bytes elements) {
  const auto elems = static_cast<std::int64_t>(elements.size() / dtype_bytes(dtype));
  return {dtype, line(elems), std::move(elements)};
}

}  // namespace actzip::testing
