// Slices that are kept as they are: they must not hold the memory that they were cut from.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "actzip/view.hpp"

namespace actzip::torch {

/// A tensor of these strides with the values of `dense`, which has the same elements in the same order of memory; what
/// lies between them is not written.
at::Tensor with_strides(const at::Tensor& dense, const Shape& shape);

/// One of them. Where it lies may change, what it holds and its strides do not.
class KeptSlice {
 public:
  explicit KeptSlice(const at::Tensor& tensor);
  [[nodiscard]] at::Tensor tensor() const;

 private:
  friend class KeptSlices;
  [[nodiscard]] std::size_t bytes() const;
  [[nodiscard]] bool is_same(const KeptSlice& other) const;
  /// Copies it, or takes the copy of one that is the same.
  void move_out(const KeptSlice* same);

  const Shape shape_;
  const void* const stream_;  ///< on which it was saved
  mutable std::mutex mutex_;
  at::Tensor tensor_;        ///< holds its storage once
  bool is_compact_ = false;  ///< it is a copy without gaps
};

/// Those of a session. Who else holds the memory is not known when a slice is saved: whoever cut it mostly still does.
/// So it is asked again with the next saves and at the end of the step. Once nobody but slices holds it, and they are
/// much smaller, they are copied, and it is free.
class KeptSlices {
 public:
  /// Whether `tensor` is a small enough part of its storage.
  static bool is_slice(const at::Tensor& tensor);

  /// Keeps it; requires is_slice().
  std::shared_ptr<const KeptSlice> add(const at::Tensor& tensor);

  /// Looks at those that were added last. Costs nothing where there are none.
  void release_recent();

  /// Looks at all.
  void release_all();

 private:
  struct Parts {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::vector<std::weak_ptr<KeptSlice>> slices;
  };
  /// Whether nothing is to be asked again.
  static bool release(Parts& parts);
  static bool others_hold(const Parts& parts);

  std::atomic<bool> has_recent_{false};
  std::mutex mutex_;
  std::unordered_map<const c10::StorageImpl*, Parts> parts_;
  std::deque<const c10::StorageImpl*> recent_;
};

}  // namespace actzip::torch
