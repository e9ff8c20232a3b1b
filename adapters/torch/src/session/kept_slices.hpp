// Slices that are kept as they are. They must not keep alive the whole memory they were cut from.
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

/// Returns a tensor of this shape and strides with the values of `dense`, which has the same elements in the same
/// memory order. Gaps between the elements are not written.
at::Tensor with_strides(const at::Tensor& dense, const Shape& shape);

/// One slice. Its memory may change; its values and strides do not.
class KeptSlice {
 public:
  explicit KeptSlice(const at::Tensor& tensor);
  [[nodiscard]] at::Tensor tensor() const;

 private:
  friend class KeptSlices;
  [[nodiscard]] std::size_t bytes() const;
  [[nodiscard]] bool is_same(const KeptSlice& other) const;
  /// Copies the slice, or takes over the copy of `same`, an equal slice.
  void move_out(const KeptSlice* same);

  const Shape shape_;
  const void* const stream_;  ///< of the save
  mutable std::mutex mutex_;
  at::Tensor tensor_;        ///< holds its storage once
  bool is_compact_ = false;  ///< a copy without gaps
};

/// The slices of a session. When a slice is saved, whoever cut it usually still holds the memory. So the session checks
/// again with the next saves and at the end of the step. Once only slices hold the memory, and they are much smaller
/// than it, they are copied, which frees it.
class KeptSlices {
 public:
  /// Whether `tensor` is a part of its storage that is small enough to be copied out.
  static bool is_slice(const at::Tensor& tensor);

  /// Keeps a slice. Requires is_slice().
  std::shared_ptr<const KeptSlice> add(const at::Tensor& tensor);

  /// Checks the slices that were added last. Costs nothing if there are none.
  void release_recent();

  /// Checks all slices.
  void release_all();

 private:
  struct Parts {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::vector<std::weak_ptr<KeptSlice>> slices;
  };
  /// Copies the slices out if possible. Returns whether they need not be checked again.
  static bool release(Parts& parts);
  static bool others_hold(const Parts& parts);

  std::atomic<bool> has_recent_{false};
  std::mutex mutex_;
  std::unordered_map<const c10::StorageImpl*, Parts> parts_;
  std::deque<const c10::StorageImpl*> recent_;
};

}  // namespace actzip::torch
