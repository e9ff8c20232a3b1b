#include "store/pinned_lane.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
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
    if (!wait_for_end(*flights, *stream)) new Flights(std::move(*flights));
  }
}

/// Returns false if the device cannot tell when the last of them has ended.
bool PinnedLane::wait_for_end(const Flights& flights, const Stream& stream) noexcept {
  if (flights.empty()) return true;
  try {
    const auto end = flights.back().done ? flights.back().done : memory_.point_in(stream);
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
  Lock lock(*this);
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
  const Unlocked outside(lock);
  memory_.wait_for(held);
}

/// What is put away last is needed first and would soon be back: a blob stays until a window of bytes has come after it.
/// Older blobs leave as soon as the device has encoded them. Frameworks enqueue far ahead of their device. So this waits
/// for a blob that two windows have followed: otherwise nobody could tell whether the copies keep up, and the framework
/// would look for memory that is not free yet. Meanwhile the device still has everything to do that came after.
void PinnedLane::let_leave(Lock& lock) {
  while (next_leaving_ != nullptr && waiting_bytes_ - next_leaving_->size >= options_.window_bytes) {
    PinnedBlob& blob = *next_leaving_;
    if (!copier_.has_passed(blob.encoded)) {
      if (waiting_bytes_ - blob.size < 2 * options_.window_bytes) return;
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
  let_go(std::exchange(blob.device, {}));
  set_away(blob, true);
  stats_.copied_out += blob.size;
  blob.note.tell();
}

void PinnedLane::freed(PinnedBlob& blob) noexcept {
  const Lock lock(*this);
  stop_waiting(blob);
  order_.remove(blob);
  if (blob.copy.owner) drop_copy(blob);
  if (blob.device.owner) stats_.device_bytes -= blob.size;
  set_away(blob, false);
}

/// Has device memory freed once the lane is unlocked; at once if the host has no memory left to remember it.
void PinnedLane::let_go(Allocation bytes) noexcept {
  if (!bytes.owner) return;
  try {
    freed_.push_back(std::move(bytes));
  } catch (const std::bad_alloc&) {
  }
}

bool PinnedLane::give_way() {
  Lock lock(*this);
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
    let_go(std::move(flights.front().device));
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
    const Lock lock(*this);
    sweep();
  }
  arena_->trim();
}

void PinnedLane::close() { arena_->close(); }

std::string PinnedLane::take_notice() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notice_, {});
}

StoreStats PinnedLane::stats() const {
  const std::lock_guard lock(mutex_);
  StoreStats stats = stats_;
  stats.ahead_bytes = order_.ahead_bytes();
  stats.peak_ahead_bytes = order_.peak_ahead_bytes();
  stats.pinned_bytes = arena_->stats().block_bytes;
  return stats;
}

}  // namespace actzip::store
