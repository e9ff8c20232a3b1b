// Walks through a view in memory order. Finding the first element takes divisions; after that there are only additions.
#pragma once

#include <cstdint>

#include "cpu/loops/level.hpp"
#include "format/element_order.hpp"

namespace actzip::cpu::ACTZIP_CPU_LEVEL {

class Cursor {
 public:
  Cursor(const format::ElementOrder& order, std::int64_t first) : order_(&order), offset_(order.offset(first)) {
    for (int d = order.rank - 1; d > 0; --d) {
      index_[d] = first % order.sizes[d];
      first /= order.sizes[d];
    }
    index_[0] = first;
  }

  /// Calls visit(offset, stride, length) for the pieces of the innermost dimension that contain the next `count`
  /// elements.
  template <class Visit>
  __attribute__((always_inline)) void advance(std::int64_t count, const Visit& visit) {
    if (order_->dense()) {
      visit(offset_, std::int64_t{1}, count);
      offset_ += count;
      return;
    }
    const int inner = order_->rank - 1;
    while (count > 0) {
      const std::int64_t left = order_->sizes[inner] - index_[inner];
      const std::int64_t length = left < count ? left : count;
      visit(offset_, order_->strides[inner], length);
      count -= length;
      index_[inner] += length;
      offset_ += length * order_->strides[inner];
      carry();
    }
  }

 private:
  void carry() {
    for (int d = order_->rank - 1; d > 0 && index_[d] == order_->sizes[d]; --d) {
      offset_ += order_->strides[d - 1] - order_->sizes[d] * order_->strides[d];
      index_[d] = 0;
      ++index_[d - 1];
    }
  }

  const format::ElementOrder* order_;
  std::int64_t offset_;
  std::int64_t index_[kMaxRank];
};

}  // namespace actzip::cpu::ACTZIP_CPU_LEVEL
