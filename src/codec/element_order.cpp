#include "format/element_order.hpp"

#include <algorithm>
#include <array>

#include "codec/message.hpp"

namespace actzip {

namespace {

using codec::fail;

/// Offsets stay below this, so that byte offsets of 8-byte elements fit into 63 bits.
constexpr std::int64_t kMaxReach = std::int64_t{1} << 60;

void check_rank(std::int64_t rank) {
  if (rank >= 0 && rank <= kMaxRank) return;
  fail(ErrorCode::invalid_view, "shape: rank {} (allowed: 0 to {})", rank, kMaxRank);
}

void check_size(int dim, std::int64_t size) {
  if (size >= 0) return;
  fail(ErrorCode::invalid_view, "shape: size {} of dimension {} is negative (allowed: 0 and up)", size, dim);
}

/// Checks the numbers of a shape. Returns whether it has any elements.
bool check_not_empty(const Shape& shape) {
  check_rank(shape.rank);
  bool empty = false;
  for (int d = 0; d < shape.rank; ++d) {
    const auto i = static_cast<std::size_t>(d);
    check_size(d, shape.sizes[i]);
    if (shape.strides[i] < 0) {
      fail(ErrorCode::invalid_view, "shape: stride {} of dimension {} is negative (allowed: 0 and up)",
           shape.strides[i], d);
    }
    empty = empty || shape.sizes[i] == 0;
  }
  return !empty;
}

std::int64_t multiply(std::int64_t a, std::int64_t b, const char* what) {
  std::int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  fail(ErrorCode::invalid_view, "shape: the {} exceeds 64 bits: {} * {}", what, a, b);
}

void check_reach(const format::ElementOrder& order) {
  std::int64_t reach = 0;
  for (int d = 0; d < order.rank; ++d) {
    const std::int64_t part = multiply(order.sizes[d] - 1, order.strides[d], "greatest offset");
    if (part < kMaxReach - reach) {
      reach += part;
      continue;
    }
    fail(ErrorCode::invalid_view, "shape: the greatest offset is {} elements or more (allowed: less)", kMaxReach);
  }
}

/// Dimensions of a shape from the largest stride to the smallest.
struct SortedDims {
  std::array<std::size_t, kMaxRank> dims{};
  std::size_t count = 0;
  [[nodiscard]] const std::size_t* begin() const { return dims.data(); }
  [[nodiscard]] const std::size_t* end() const { return dims.data() + count; }
};

/// Lists the dimensions for which `keep(size, stride)` is true.
template <class Keep>
SortedDims sorted_dims(const Shape& shape, Keep keep) {
  SortedDims sorted;
  for (std::size_t d = 0; d < static_cast<std::size_t>(shape.rank); ++d) {
    if (keep(shape.sizes[d], shape.strides[d])) sorted.dims[sorted.count++] = d;
  }
  // An insertion sort, because std::stable_sort allocates.
  for (std::size_t i = 1; i < sorted.count; ++i) {
    for (std::size_t j = i; j > 0; --j) {
      if (shape.strides[sorted.dims[j - 1]] >= shape.strides[sorted.dims[j]]) break;
      std::swap(sorted.dims[j - 1], sorted.dims[j]);
    }
  }
  return sorted;
}

}  // namespace

format::ElementOrder format::element_order(const Shape& shape) {
  ElementOrder order;
  if (!check_not_empty(shape)) return order;
  order.elems = 1;
  const auto counts = [](std::int64_t size, std::int64_t stride) { return size > 1 && stride > 0; };
  for (const std::size_t d : sorted_dims(shape, counts)) {
    const std::int64_t size = shape.sizes[d];
    const std::int64_t stride = shape.strides[d];
    order.elems = multiply(order.elems, size, "number of elements");
    // If the outer stride equals the whole inner run, index (i, j) lies at (i*size + j) * stride. The two dimensions
    // are then one, even if elements overlap.
    const int last = order.rank - 1;
    std::int64_t run = 0;
    if (last >= 0 && !__builtin_mul_overflow(size, stride, &run) && order.strides[last] == run) {
      order.sizes[last] *= size;
      order.strides[last] = stride;
      continue;
    }
    order.sizes[order.rank] = size;
    order.strides[order.rank] = stride;
    ++order.rank;
  }
  check_reach(order);
  return order;
}

/// Dimensions that interleave without meeting, as in sizes (2, 3) and strides (3, 2), count as overlapping. Telling
/// them apart takes a search, and tensors that are written are not allocated like this.
bool format::overlaps_itself(const ElementOrder& order) {
  std::int64_t reach = 0;
  for (int d = order.rank - 1; d >= 0; --d) {
    if (order.strides[d] <= reach) return true;
    reach += (order.sizes[d] - 1) * order.strides[d];
  }
  return false;
}

Shape Shape::contiguous(std::initializer_list<std::int64_t> sizes) {
  check_rank(static_cast<std::int64_t>(sizes.size()));
  Shape shape;
  for (const std::int64_t size : sizes) {
    check_size(shape.rank, size);
    shape.sizes[static_cast<std::size_t>(shape.rank++)] = size;
  }
  std::int64_t stride = 1;
  for (auto d = static_cast<std::size_t>(shape.rank); d-- > 0;) {
    shape.strides[d] = stride;
    stride = multiply(stride, std::max<std::int64_t>(shape.sizes[d], 1), "number of elements");
  }
  return shape;
}

std::int64_t unique_elems(const Shape& shape) {
  if (!check_not_empty(shape)) return 0;
  std::int64_t elems = 1;
  for (std::size_t d = 0; d < static_cast<std::size_t>(shape.rank); ++d) {
    if (shape.strides[d] > 0) elems = multiply(elems, shape.sizes[d], "number of elements");
  }
  return elems;
}

Shape compact(const Shape& shape) {
  if (format::element_order(shape).dense()) return shape;
  // Dimensions of size 1 do not affect the order, but get the stride that they would have in a dense tensor.
  const SortedDims outer_first = sorted_dims(shape, [](std::int64_t, std::int64_t stride) { return stride > 0; });
  Shape result = shape;
  std::int64_t stride = 1;
  for (std::size_t i = outer_first.count; i-- > 0;) {
    const std::size_t d = outer_first.dims[i];
    result.strides[d] = stride;
    stride *= shape.sizes[d];
  }
  return result;
}

}  // namespace actzip
