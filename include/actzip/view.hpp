// Non-owning descriptions of memory: strided tensors, encoded bytes, and segments.
//
// Elements are coded in *memory order*: dimensions from the largest stride to the smallest, with dimensions of stride 0
// counted once. A dense tensor in any dimension order (channels-last, transposed) is therefore one run of memory and
// costs no copy. An expanded tensor keeps only its unique elements. Everything else is gathered.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "actzip/types.hpp"

namespace actzip {

inline constexpr int kMaxRank = 8;

using Extents = std::array<std::int64_t, kMaxRank>;

/// Shape and strides, in elements, outermost dimension first. Strides are not negative.
struct Shape {
  int rank = 0;
  Extents sizes{};
  Extents strides{};

  /// A row-major dense shape. Throws Error(invalid_view) for a rank above kMaxRank or a negative size.
  static Shape contiguous(std::initializer_list<std::int64_t> sizes);

  bool operator==(const Shape&) const = default;
};

/// A strided tensor that the view does not own. `Pointer` is `const void*` to read and `void*` to write.
template <class Pointer>
struct BasicTensorView {
  Pointer data = nullptr;  ///< the element at index (0, ..., 0); aligned to its element type
  DType dtype = DType::f32;
  Shape shape;
  Device device;

  BasicTensorView() = default;
  BasicTensorView(Pointer data_, DType dtype_, const Shape& shape_, Device device_ = {})
      : data(data_), dtype(dtype_), shape(shape_), device(device_) {}

  template <class Other>
    requires(!std::is_same_v<Other, Pointer> && std::is_convertible_v<Other, Pointer>)
  BasicTensorView(
      const BasicTensorView<Other>& other)  // NOLINT(google-explicit-constructor): a writable view can be read
      : BasicTensorView(other.data, other.dtype, other.shape, other.device) {}
};

using TensorView = BasicTensorView<void*>;
using ConstTensorView = BasicTensorView<const void*>;

/// Number of elements that a codec sees: the product of the sizes of all dimensions whose stride is not 0. Throws
/// Error(invalid_view) for a negative size or stride, or a rank above kMaxRank.
std::int64_t unique_elems(const Shape& shape);

/// Returns the dense shape that lists the same elements in the same memory order. Allocate it to decode a tensor that
/// had gaps or overlaps when it was encoded. Dimensions of stride 0 stay so. A dense shape is returned unchanged.
Shape compact(const Shape& shape);

/// Encoded bytes that the span does not own. `data` is a multiple of 16.
template <class Pointer>
struct BasicByteSpan {
  Pointer data = nullptr;
  std::size_t size = 0;
  Device device;

  BasicByteSpan() = default;
  BasicByteSpan(Pointer data_, std::size_t size_, Device device_ = {}) : data(data_), size(size_), device(device_) {}

  template <class Other>
    requires(!std::is_same_v<Other, Pointer> && std::is_convertible_v<Other, Pointer>)
  BasicByteSpan(const BasicByteSpan<Other>& other)  // NOLINT(google-explicit-constructor): as above
      : BasicByteSpan(other.data, other.size, other.device) {}
};

using ByteSpan = BasicByteSpan<std::byte*>;
using ConstByteSpan = BasicByteSpan<const std::byte*>;

/// Divides the elements into equal runs (samples, rows, channels). Groups restart at each run, so no two segments share
/// statistics.
struct Segments {
  std::int64_t count = 1;
  /// 0: all segments have the bits of the spec, whatever the codec. Otherwise each segment has bits of its own, for
  /// `affine` and `rotated`: encode() reads them from a table, and this is the most that they may add up to, from
  /// `count` to `count` times the codec's most bits. Sizes follow from this number, not from the table.
  std::int64_t total_bits = 0;
  [[nodiscard]] constexpr bool has_own_bits() const noexcept { return total_bits != 0; }
  bool operator==(const Segments&) const = default;
};

}  // namespace actzip
