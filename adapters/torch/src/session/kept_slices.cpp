#include "session/kept_slices.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iterator>
#include <optional>
#include <utility>

#include "base/convert.hpp"
#include "base/memory.hpp"
#include "observe/running_operators.hpp"

namespace actzip::torch {

namespace {

/// A copy must free at least this many bytes to be worth its time.
constexpr std::size_t kWorthCopying = 4096;

/// How many storages each save checks.
constexpr std::size_t kRecent = 8;

/// Whether copying out frees at least a quarter of the memory, and at least kWorthCopying.
bool frees_much(std::size_t copied, std::size_t whole) { return copied + std::max(whole / 4, kWorthCopying) <= whole; }

at::IntArrayRef sizes_of(const Shape& shape) { return {shape.sizes.data(), static_cast<std::size_t>(shape.rank)}; }
at::IntArrayRef strides_of(const Shape& shape) { return {shape.strides.data(), static_cast<std::size_t>(shape.rank)}; }

/// Allocates memory of that shape. It begins as far from a multiple of 64 bytes as `like`, because the last bit of a
/// kernel's result may depend on the alignment.
at::Tensor aligned_as(const at::Tensor& like, const Shape& shape) {
  constexpr std::uintptr_t kAlignment = 64;
  const auto beyond = reinterpret_cast<std::uintptr_t>(like.const_data_ptr()) % kAlignment;
  const auto offset = static_cast<std::int64_t>(beyond / like.element_size());
  std::int64_t extent = 1;
  for (std::size_t d = 0; d < static_cast<std::size_t>(shape.rank); ++d) {
    extent += (shape.sizes[d] - 1) * shape.strides[d];
  }
  return at::empty_strided({offset + extent}, {1}, like.options())
      .as_strided(sizes_of(shape), strides_of(shape), offset);
}

/// Copies each element once. Both tensors have the same memory order.
void copy_elements(const at::Tensor& to, const at::Tensor& from) {
  std::vector<std::int64_t> written(from.sizes().vec());
  for (std::size_t d = 0; d < written.size(); ++d) {
    if (to.strides()[d] == 0) written[d] = std::min<std::int64_t>(written[d], 1);  // expanded: once
  }
  to.as_strided(written, to.strides()).copy_(from.as_strided(written, from.strides()));
}

}  // namespace

at::Tensor with_strides(const at::Tensor& dense, const Shape& shape) {
  const at::Tensor tensor = aligned_as(dense, shape);
  copy_elements(tensor, dense);
  return tensor;
}

KeptSlice::KeptSlice(const at::Tensor& tensor)
    : shape_(to_shape(tensor)), stream_(current_stream(tensor.device()).handle()), tensor_(tensor.tensor_data()) {}

at::Tensor KeptSlice::tensor() const {
  const std::lock_guard lock(mutex_);
  const bool has_gaps = is_compact_ && tensor_.strides() != strides_of(shape_);
  return has_gaps ? with_strides(tensor_, shape_) : tensor_;
}

std::size_t KeptSlice::bytes() const { return static_cast<std::size_t>(unique_elems(shape_)) * tensor_.element_size(); }

/// Requires that neither was moved out.
bool KeptSlice::is_same(const KeptSlice& other) const {
  return tensor_.const_data_ptr() == other.tensor_.const_data_ptr() && shape_ == other.shape_ &&
         tensor_.scalar_type() == other.tensor_.scalar_type() && stream_ == other.stream_;
}

/// Does nothing unless the current stream is that of the save: the work that writes the slice may still be running
/// there.
void KeptSlice::move_out(const KeptSlice* same) {
  const std::lock_guard lock(mutex_);
  const c10::OptionalDeviceGuard device(tensor_.is_cpu() ? std::nullopt : std::optional(tensor_.device()));
  if (current_stream(tensor_.device()).handle() != stream_) return;
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  const Unheard unheard;
  at::Tensor copied = same != nullptr ? same->tensor_ : aligned_as(tensor_, compact(shape_));
  if (same == nullptr) copy_elements(copied, tensor_);
  record_on_current_stream(tensor_.storage());
  tensor_ = std::move(copied);
  is_compact_ = true;
}

bool KeptSlices::is_slice(const at::Tensor& tensor) {
  const std::size_t whole = tensor.storage().nbytes();
  if (whole <= kWorthCopying || tensor.numel() == 0 || tensor.is_conj()) return false;
  return frees_much(static_cast<std::size_t>(unique_elems(to_shape(tensor))) * tensor.element_size(), whole);
}

std::shared_ptr<const KeptSlice> KeptSlices::add(const at::Tensor& tensor) {
  auto slice = std::make_shared<KeptSlice>(tensor);
  const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  const std::lock_guard lock(mutex_);
  // As long as this weak reference exists, no other storage gets the same address.
  auto& parts = parts_.try_emplace(storage, Parts{tensor.storage().getWeakStorageImpl(), {}}).first->second;
  parts.slices.push_back(slice);
  if (recent_.empty() || recent_.back() != storage) recent_.push_back(storage);
  if (recent_.size() > kRecent) recent_.pop_front();
  has_recent_ = true;
  return slice;
}

/// Each slice holds the storage once. May return false wrongly if slices have expired, so release() erases those first.
bool KeptSlices::others_hold(const Parts& parts) {
  const auto storage = parts.storage.lock();
  return storage && storage.use_count() > parts.slices.size() + 1;
}

bool KeptSlices::release(Parts& parts) {
  std::erase_if(parts.slices, [](const auto& slice) { return slice.expired(); });
  std::vector<std::shared_ptr<KeptSlice>> slices;
  for (const auto& slice : parts.slices) {
    if (auto live = slice.lock()) slices.push_back(std::move(live));
  }
  if (slices.empty()) return true;
  if (others_hold(parts)) return false;
  std::vector<const KeptSlice*> same(slices.size(), nullptr);  // an earlier, equal slice
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const auto end = slices.begin() + static_cast<std::ptrdiff_t>(i);
    const auto found = std::find_if(slices.begin(), end, [&](const auto& other) { return slices[i]->is_same(*other); });
    if (found != end) same[i] = found->get();
    if (found == end) bytes += slices[i]->bytes();
  }
  const auto storage = parts.storage.lock();
  if (!storage || !frees_much(bytes, storage->nbytes())) return true;
  try {
    for (std::size_t i = 0; i < slices.size(); ++i) slices[i]->move_out(same[i]);
  } catch (const std::exception&) {
    return true;  // no memory for the copies: the rest stays where it is
  }
  return true;
}

void KeptSlices::release_recent() {
  if (!has_recent_) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(recent_, [&](const c10::StorageImpl* storage) {
    const auto found = parts_.find(storage);
    if (found == parts_.end()) return true;
    if (others_hold(found->second) || !release(found->second)) return false;
    parts_.erase(found);
    return true;
  });
  has_recent_ = !recent_.empty();
}

void KeptSlices::release_all() {
  const std::lock_guard lock(mutex_);
  for (auto entry = parts_.begin(); entry != parts_.end();) {
    entry = release(entry->second) ? parts_.erase(entry) : std::next(entry);
  }
  recent_.clear();
  has_recent_ = false;
}

}  // namespace actzip::torch
