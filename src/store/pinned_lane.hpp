// What one device puts away in pinned memory, and the copies on their way.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actzip/memory.hpp"
#include "actzip/stream.hpp"
#include "store/arena.hpp"
#include "store/fetch_queue.hpp"
#include "store/held_memory.hpp"
#include "store/store.hpp"

namespace actzip::store {

class PinnedLane;

/// Bytes that were encoded on a device. Where they are: in `device`, until they have left; then in `host`, and in
/// `copy` while they are back.
struct PinnedBlob final : FetchQueue::Entry {
  PinnedBlob(std::shared_ptr<PinnedLane> its_lane, std::size_t its_size) : Entry(its_size), lane(std::move(its_lane)) {}
  PinnedBlob(const PinnedBlob&) = delete;
  PinnedBlob& operator=(const PinnedBlob&) = delete;
  ~PinnedBlob();

  const std::shared_ptr<PinnedLane> lane;

  // Guarded by the lane.
  HeldMemory::Part held;       ///< what `device` counts for in a budget
  HeldMemory::Part copy_held;  ///< the same for `copy`
  Allocation device;
  Allocation host;
  Allocation copy;
  Stream writer;
  Stream home;  ///< the stream in whose order `copy` was allocated
  std::shared_ptr<void> encoded;
  std::shared_ptr<void> left;     ///< when `host` has the bytes
  std::shared_ptr<void> arrived;  ///< when `copy` has
  bool is_waiting = false;        ///< for its turn to leave
  bool was_read = false;          ///< `copy`, on some stream that has waited for it
  LeaveNote note;
};

/// Thread-safe. Waits for a device only where it says so, and lets other threads in meanwhile.
class PinnedLane {
 public:
  PinnedLane(const PinnedOptions& options, Memory& memory, Copier& copier);
  PinnedLane(const PinnedLane&) = delete;
  PinnedLane& operator=(const PinnedLane&) = delete;
  /// Waits for the copies: what they use is free then.
  ~PinnedLane();

  /// `blob` has got its device memory.
  void note_reserved(const PinnedBlob& blob);

  /// Without a budget it waits until the device has encoded what was put away a window of bytes ago.
  void put_away(PinnedBlob& blob, const Stream& writer, const LeaveNote& note);

  Allocation fetch(PinnedBlob& blob, const Stream& reader);
  void foresee(const Stream& reader);
  void freed(PinnedBlob& blob) noexcept;

  /// Makes some device memory free: drops what can be brought back again, waits for a copy, or begins one, whose Error
  /// it throws. False if nothing helps.
  bool give_way();

  void trim();
  /// Blocks of pinned memory go back when they are empty.
  void close();
  std::string take_notice();
  [[nodiscard]] StoreStats stats() const;

 private:
  /// A copy on its way. Its pinned memory stays until it has come to its end.
  struct Flight {
    Allocation host;
    std::size_t bytes = 0;
    HeldMemory::Part held;       ///< of the device memory that it frees
    std::shared_ptr<void> done;  ///< null if the device refused to say: it ends with the next
  };
  using Flights = std::deque<Flight>;
  using Lock = std::unique_lock<std::mutex>;

  bool wait_for_end(const Stream& stream) noexcept;
  void wait_outside(Lock& lock, const std::shared_ptr<void>& point);
  void let_leave(Lock& lock);
  void let_leave_for_budget();
  void stop_waiting(PinnedBlob& blob) noexcept;
  bool try_leave(PinnedBlob& blob);
  void leave(PinnedBlob& blob);
  Allocation on_device(const PinnedBlob& blob, const Stream& reader);
  Allocation brought_back(PinnedBlob& blob, const Stream& reader);
  bool bring_now(PinnedBlob& blob, const Stream& reader);
  void bring(PinnedBlob& blob, const Stream& reader);
  void ask_ahead(const Stream& reader);
  void drop_copy(PinnedBlob& blob) noexcept;
  void keep_for_inward(const Allocation& copy) noexcept;
  bool drop_one(bool ahead) noexcept;
  std::size_t sweep();
  std::size_t sweep(Flights& flights);
  void set_away(PinnedBlob& blob, bool is_away) noexcept;
  void enter_device(std::size_t bytes) noexcept;

  const PinnedOptions options_;
  Memory& memory_;
  Copier& copier_;
  const Stream outward_;
  const Stream inward_;
  const pid_t process_;
  const std::shared_ptr<Arena> arena_;

  mutable std::mutex mutex_;  ///< of everything below
  FetchQueue order_;
  PinnedBlob* next_leaving_ = nullptr;  ///< the first that waits for its turn; those put away after it wait, too
  std::size_t waiting_bytes_ = 0;
  Flights leaving_;  ///< in the order of their stream, as are the following
  Flights coming_;
  std::size_t leaving_bytes_ = 0;
  std::vector<PinnedBlob*> copies_;  ///< that are back on the device, in the order in which they were asked for
  std::size_t copy_bytes_ = 0;
  bool can_ask_ = true;  ///< the device has had room for what was asked for ahead, as far as is known
  bool has_said_ = false;
  std::string notice_;
  StoreStats stats_;
};

}  // namespace actzip::store
