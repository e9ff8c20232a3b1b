#include "store/pinned_lane.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "actzip/error.hpp"
#include "store/pinned_blocks.hpp"

namespace actzip::store {

namespace {

Error captured() {
  return {ErrorCode::store_failure,
          "store: bytes would be copied while a graph is captured (allowed: before the capture or after it)"};
}

}  // namespace

PinnedBlob::~PinnedBlob() { lane->freed(*this); }

PinnedLane::PinnedLane(const PinnedOptions& options, Memory& memory, Copier& copier)
    : options_(options),
      memory_(memory),
      copier_(copier),
      outward_(copier.outward()),
      inward_(copier.inward()),
      process_(getpid()),
      arena_(Arena::create(std::make_shared<PinnedBlocks>(copier), options.block_bytes)),
      order_(options.window_bytes) {}

PinnedLane::~PinnedLane() {
  if (getpid() != process_) return;  // the copies belong to the parent process
  for (const auto& [flights, stream] : {std::pair(&leaving_, &outward_), std::pair(&coming_, &inward_)}) {
    // Never freed, because it is still in use.
    if (!flights->empty() && !wait_for_end(*stream)) new Flights(std::move(*flights));
  }
}

/// Returns false if the device cannot tell when it has reached the end.
bool PinnedLane::wait_for_end(const Stream& stream) noexcept {
  try {
    const auto end = memory_.point_in(stream);
    if (end) memory_.wait_for(end);
    return end != nullptr;
  } catch (const std::exception&) {
    return false;
  }
}

/// Returns a point in the order of `stream`. Throws if there is none.
std::shared_ptr<void> PinnedLane::point_in(const Stream& stream) {
  std::shared_ptr<void> point = memory_.point_in(stream);
  if (!point) throw captured();
  return point;
}

void PinnedLane::note_reserved(const PinnedBlob& blob) {
  const std::lock_guard lock(mutex_);
  enter_device(blob.size);
}

void PinnedLane::put_away(PinnedBlob& blob, const Stream& writer, const LeaveNote& note) {
  Lock lock(mutex_);
  if (blob.is_known) return;
  blob.writer = writer;
  blob.note = note;
  blob.encoded = point_in(writer);
  can_ask_ = true;
  order_.add(blob);
  blob.is_waiting = true;
  waiting_bytes_ += blob.size;
  if (next_leaving_ == nullptr) next_leaving_ = &blob;
  if (options_.budget) {
    let_leave_for_budget();
  } else {
    let_leave(lock);
  }
}

/// Starts copies before their room is needed, so that nobody waits for a link that keeps up. If one fails, make_room()
/// reports it when it matters. As long as the limit is unknown, everything leaves.
void PinnedLane::let_leave_for_budget() {
  sweep();
  const HeldMemory& budget = *options_.budget;
  const std::size_t limit = budget.limit();
  while (next_leaving_ != nullptr && (limit == HeldMemory::kNoLimit || budget.room() + leaving_bytes_ < limit / 4)) {
    PinnedBlob& blob = *next_leaving_;
    if (!try_leave(blob)) return;
    stop_waiting(blob);
  }
}

void PinnedLane::wait_outside(Lock& lock, const std::shared_ptr<void>& point) {
  const std::shared_ptr<void> held = point;  // the blob may be freed meanwhile
  ++stats_.host_waits;
  lock.unlock();
  memory_.wait_for(held);
  lock.lock();
}

/// What is put away last is needed first and would soon be back, so a window of bytes stays. Older blobs leave as soon
/// as the device has encoded them. Frameworks enqueue far ahead of their device: without this wait nobody could tell
/// whether the copies keep up, and the framework would look for memory that is not free yet. Waiting costs nothing,
/// since the device still has everything to do that came after.
void PinnedLane::let_leave(Lock& lock) {
  while (next_leaving_ != nullptr && waiting_bytes_ > options_.window_bytes) {
    PinnedBlob& blob = *next_leaving_;
    if (!copier_.has_passed(blob.encoded)) {
      wait_outside(lock, blob.encoded);
      continue;
    }
    sweep();
    stop_waiting(blob);
    const bool is_behind = leaving_bytes_ > 0 && leaving_bytes_ + blob.size > options_.window_bytes;
    if (is_behind || !try_leave(blob)) stats_.passed_over += blob.size;
  }
}

void PinnedLane::stop_waiting(PinnedBlob& blob) noexcept {
  if (!blob.is_waiting) return;
  blob.is_waiting = false;
  waiting_bytes_ -= blob.size;
  if (next_leaving_ == &blob) next_leaving_ = static_cast<PinnedBlob*>(blob.after);
}

/// A blob that cannot leave stays on its device, where it remains valid.
bool PinnedLane::try_leave(PinnedBlob& blob) {
  try {
    leave(blob);
    return true;
  } catch (const std::exception& error) {
    if (!has_said_ && !options_.budget)
      notice_ = fmt::format("{}; what finds no place in host memory stays on its device", error.what());
    has_said_ = true;
    return false;
  }
}

/// Starts the copy out. The device memory is freed now and reused only after the copy. If anything throws, nothing has
/// changed, except perhaps the pinned memory in use.
void PinnedLane::leave(PinnedBlob& blob) {
  if (memory_.copier(blob.writer) == nullptr) throw captured();
  Allocation host = arena_->allocate(blob.size);
  Flight& flight = leaving_.emplace_back();
  flight.host = host;
  copier_.let_wait(outward_, blob.encoded);
  copier_.keep_for(blob.device, outward_);
  copier_.copy(host.data, blob.device.data, blob.size, outward_);
  flight.done = point_in(outward_);
  flight.bytes = blob.size;
  flight.held = std::move(blob.held);
  leaving_bytes_ += blob.size;
  blob.left = flight.done;
  blob.host = std::move(host);
  blob.device = {};
  set_away(blob, true);
  stats_.copied_out += blob.size;
  blob.note.tell();
}

Allocation PinnedLane::fetch(PinnedBlob& blob, const Stream& reader) {
  const Lock lock(mutex_);
  sweep();
  ++stats_.fetches;
  order_.note_fetch(blob);
  Allocation bytes = blob.device.owner ? on_device(blob, reader) : brought_back(blob, reader);
  ask_ahead(reader);
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

Allocation PinnedLane::brought_back(PinnedBlob& blob, const Stream& reader) {
  bool stays = true;
  if (!blob.copy.owner) {
    ++stats_.waits;
    stays = bring_now(blob, reader);
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
bool PinnedLane::bring_now(PinnedBlob& blob, const Stream& reader) {
  HeldMemory::Part held;
  if (options_.budget) {
    do {
      held = options_.budget->try_hold(blob.size);
    } while (!held && drop_one(/*ahead=*/false));
  }
  bring(blob, needed_memory(blob.size, reader), reader);
  const bool stays = !options_.budget || held;
  blob.copy_held = std::move(held);
  return stays;
}

/// Drops copies if the device is full: what is needed now comes first.
Allocation PinnedLane::needed_memory(std::size_t bytes, const Stream& reader) {
  while (true) {
    try {
      return memory_.allocate(bytes, reader);
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
    free_after_copy(std::move(copy), flight);
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
  const Lock lock(mutex_);
  sweep();
  order_.foresee();
  ask_ahead(reader);
}

/// Requests what backward needs next. If that fails, it is brought when it is needed, and an error is reported then.
void PinnedLane::ask_ahead(const Stream& reader) {
  while (can_ask_) {
    FetchQueue::Entry* const next = order_.next_ahead();
    if (next == nullptr) return;
    auto& blob = static_cast<PinnedBlob&>(*next);
    HeldMemory::Part held;
    if (options_.budget) {
      held = options_.budget->try_hold(blob.size);
      if (!held) return order_.take_back(blob);
    }
    try {
      bring(blob, memory_.allocate(blob.size, reader), reader);
    } catch (const std::exception&) {
      order_.take_back(blob);
      can_ask_ = false;
      return;
    }
    blob.copy_held = std::move(held);
  }
}

void PinnedLane::freed(PinnedBlob& blob) noexcept {
  const Lock lock(mutex_);
  stop_waiting(blob);
  order_.remove(blob);
  if (blob.copy.owner) drop_copy(blob);
  if (blob.device.owner) stats_.device_bytes -= blob.size;
  set_away(blob, false);
}

/// Drops the copy on the device. The bytes are in pinned memory as well.
void PinnedLane::drop_copy(PinnedBlob& blob) noexcept {
  if (!blob.was_read) {  // no stream has waited for the copy
    const auto flight = std::ranges::find(coming_, blob.arrived, &Flight::done);
    if (flight != coming_.end()) free_after_copy(std::move(blob.copy), *flight);
  }
  order_.forget_asked(blob);
  std::erase(copies_, &blob);
  copy_bytes_ -= blob.size;
  stats_.device_bytes -= blob.size;
  blob.copy = {};
  blob.copy_held = {};
  set_away(blob, true);
}

/// Frees device memory that `flight` may still write to. Usually the allocator waits for the copy; if the device
/// refuses that, the flight keeps the memory.
void PinnedLane::free_after_copy(Allocation copy, Flight& flight) noexcept {
  try {
    copier_.keep_for(copy, inward_);
  } catch (const std::exception&) {
    flight.device = std::move(copy);
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

bool PinnedLane::give_way() {
  Lock lock(mutex_);
  if (sweep() > 0 || drop_one(/*ahead=*/false)) return true;
  const auto flight = std::ranges::find_if(leaving_, [](const Flight& each) { return each.done != nullptr; });
  if (flight != leaving_.end()) {
    wait_outside(lock, flight->done);
    sweep();
    return true;
  }
  if (next_leaving_ == nullptr) return drop_one(/*ahead=*/true);
  PinnedBlob& blob = *next_leaving_;
  try {
    leave(blob);
  } catch (const std::exception&) {
    if (drop_one(/*ahead=*/true)) return true;
    throw;
  }
  stop_waiting(blob);
  return true;
}

/// Releases what finished copies have used. Returns how many bytes of the device this frees.
std::size_t PinnedLane::sweep() {
  sweep(coming_);
  const std::size_t bytes = sweep(leaving_);
  leaving_bytes_ -= bytes;
  stats_.device_bytes -= bytes;
  return bytes;
}

std::size_t PinnedLane::sweep(Flights& flights) {
  std::size_t ended = 0;
  for (std::size_t i = 0; i < flights.size(); ++i) {
    if (!flights[i].done) continue;
    if (!copier_.has_passed(flights[i].done)) break;
    ended = i + 1;
  }
  std::size_t bytes = 0;
  for (; ended > 0; --ended) {
    bytes += flights.front().bytes;
    flights.pop_front();
  }
  return bytes;
}

void PinnedLane::set_away(PinnedBlob& blob, bool is_away) noexcept {
  if (blob.is_away == is_away) return;
  blob.is_away = is_away;
  if (is_away) {
    stats_.away_bytes += blob.size;
    stats_.peak_away_bytes = std::max(stats_.peak_away_bytes, stats_.away_bytes);
  } else {
    stats_.away_bytes -= blob.size;
  }
}

void PinnedLane::enter_device(std::size_t bytes) noexcept {
  stats_.device_bytes += bytes;
  stats_.peak_device_bytes = std::max(stats_.peak_device_bytes, stats_.device_bytes);
}

void PinnedLane::trim() {
  {
    const Lock lock(mutex_);
    sweep();
  }
  arena_->trim();
}

void PinnedLane::close() { arena_->close(); }

std::string PinnedLane::take_notice() {
  const Lock lock(mutex_);
  return std::exchange(notice_, {});
}

StoreStats PinnedLane::stats() const {
  const Lock lock(mutex_);
  StoreStats stats = stats_;
  stats.ahead_bytes = order_.ahead_bytes();
  stats.peak_ahead_bytes = order_.peak_ahead_bytes();
  stats.pinned_bytes = arena_->stats().block_bytes;
  return stats;
}

}  // namespace actzip::store
