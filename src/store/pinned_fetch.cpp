// How blobs come back from pinned memory: when they are needed, ahead of that, and away again.
#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "store/pinned_lane.hpp"

namespace actzip::store {

Allocation PinnedLane::fetch(PinnedBlob& blob, const Stream& reader) {
  Lock lock(*this);
  sweep();
  ++stats_.fetches;
  order_.note_fetch(blob);
  Allocation bytes = blob.device.owner ? on_device(blob, reader) : brought_back(lock, blob, reader);
  ask_ahead(lock, reader);
  while (copy_bytes_ > options_.window_bytes + order_.ahead_bytes() && drop_one(/*ahead=*/false)) {
  }
  return bytes;
}

Allocation PinnedLane::on_device(const PinnedBlob& blob, const Stream& reader) {
  if (blob.writer.handle() != reader.handle()) {
    copier_.let_wait(reader, blob.encoded);
    copier_.keep_for(blob.device, reader);
  }
  return blob.device;
}

Allocation PinnedLane::brought_back(Lock& lock, PinnedBlob& blob, const Stream& reader) {
  bool stays = true;
  if (!blob.copy.owner) {
    ++stats_.waits;
    stays = bring_now(lock, blob, reader);
  }
  const auto drop = [this](PinnedBlob* beyond) { drop_copy(*beyond); };
  const std::unique_ptr<PinnedBlob, decltype(drop)> beyond_budget(stays ? nullptr : &blob, drop);
  copier_.let_wait(reader, blob.arrived);
  if (blob.home.handle() != reader.handle()) copier_.keep_for(blob.copy, reader);
  blob.was_read = true;
  return blob.copy;
}

/// An operator always gets what it needs now. Beyond the budget it gets a buffer of its own, which is freed with it.
/// Returns whether the copy may stay.
bool PinnedLane::bring_now(Lock& lock, PinnedBlob& blob, const Stream& reader) {
  HeldMemory::Part held;
  if (options_.budget) {
    do {
      held = options_.budget->try_hold(blob.size);
    } while (!held && drop_one(/*ahead=*/false));
  }
  Allocation copy = needed_memory(lock, blob.size, reader);
  if (blob.copy.owner) {  // another thread has brought it meanwhile
    let_go(std::move(copy));
    return true;
  }
  bring(blob, std::move(copy), reader);
  const bool stays = !options_.budget || held;
  blob.copy_held = std::move(held);
  return stays;
}

Allocation PinnedLane::allocate_unlocked(Lock& lock, std::size_t bytes, const Stream& reader) {
  const Unlocked outside(lock);
  return memory_.allocate(bytes, reader);
}

/// Drops copies if the device is full: what is needed now comes first.
Allocation PinnedLane::needed_memory(Lock& lock, std::size_t bytes, const Stream& reader) {
  while (true) {
    try {
      return allocate_unlocked(lock, bytes, reader);
    } catch (const std::exception&) {
      can_ask_ = false;
      if (!drop_one(/*ahead=*/false) && !drop_one(/*ahead=*/true)) throw;
    }
  }
}

/// Starts the copy back to `copy`, which the reader may still use for something else at this point of its order.
void PinnedLane::bring(PinnedBlob& blob, Allocation copy, const Stream& reader) {
  copies_.reserve(copies_.size() + 1);
  Flight& flight = coming_.emplace_back();
  flight.host = blob.host;
  try {
    copier_.let_wait(inward_, point_in(reader));
    copier_.let_wait(inward_, blob.left);
    copier_.copy(copy.data, blob.host.data, blob.size, inward_);
    flight.done = point_in(inward_);
  } catch (...) {
    if (!keep_for_inward(copy)) flight.device = copy;
    let_go(std::move(copy));
    throw;
  }
  blob.arrived = flight.done;
  blob.copy = std::move(copy);
  blob.home = reader;
  blob.was_read = false;
  copies_.push_back(&blob);
  copy_bytes_ += blob.size;
  set_away(blob, false);
  enter_device(blob.size);
  stats_.copied_in += blob.size;
}

void PinnedLane::foresee(const Stream& reader) {
  Lock lock(*this);
  sweep();
  order_.foresee();
  ask_ahead(lock, reader);
}

/// Requests what backward needs next. If that fails, it is brought when it is needed, and an error is reported then.
void PinnedLane::ask_ahead(Lock& lock, const Stream& reader) {
  try {
    while (can_ask_ && ask_for_one(lock, reader)) {
    }
  } catch (const std::exception&) {
    can_ask_ = false;
  }
}

/// Returns false if there is nothing to request, or no room.
bool PinnedLane::ask_for_one(Lock& lock, const Stream& reader) {
  const FetchQueue::Entry* const next = order_.peek_ahead();
  if (next == nullptr) return false;
  const std::size_t bytes = next->size;
  HeldMemory::Part held;
  if (options_.budget) {
    held = options_.budget->try_hold(bytes);
    if (!held) return false;
  }
  Allocation copy = allocate_unlocked(lock, bytes, reader);
  const FetchQueue::Entry* const still_next = order_.peek_ahead();
  if (still_next == nullptr || still_next->size != bytes) {  // another thread came first
    let_go(std::move(copy));
    return true;
  }
  auto& blob = static_cast<PinnedBlob&>(*order_.next_ahead());
  try {
    bring(blob, std::move(copy), reader);
  } catch (const std::exception&) {
    order_.take_back(blob);
    throw;
  }
  blob.copy_held = std::move(held);
  return true;
}

/// Drops the copy on the device. The bytes are in pinned memory as well.
void PinnedLane::drop_copy(PinnedBlob& blob) noexcept {
  if (!blob.was_read && !keep_for_inward(blob.copy)) {  // no stream has waited for the copy
    const auto flight = std::ranges::find(coming_, blob.arrived, &Flight::done);
    if (flight != coming_.end()) flight->device = blob.copy;
  }
  order_.forget_asked(blob);
  std::erase(copies_, &blob);
  copy_bytes_ -= blob.size;
  stats_.device_bytes -= blob.size;
  let_go(std::exchange(blob.copy, {}));
  blob.copy_held = {};
  set_away(blob, true);
}

/// Returns false if the device refuses: the memory must then stay with its flight.
bool PinnedLane::keep_for_inward(const Allocation& copy) noexcept {
  try {
    copier_.keep_for(copy, inward_);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

/// Drops one copy: with `ahead`, the one that backward needs last of those it is about to need; otherwise the oldest of
/// the others. Returns false if there is none.
bool PinnedLane::drop_one(bool ahead) noexcept {
  const auto is_such = [&](const PinnedBlob* blob) { return order_.is_ahead(*blob) == ahead; };
  PinnedBlob* found = nullptr;
  if (ahead) {
    const auto last = std::find_if(copies_.rbegin(), copies_.rend(), is_such);
    if (last != copies_.rend()) found = *last;
  } else {
    const auto first = std::find_if(copies_.begin(), copies_.end(), is_such);
    if (first != copies_.end()) found = *first;
  }
  if (found == nullptr) return false;
  drop_copy(*found);
  return true;
}

}  // namespace actzip::store
