// Pinned memory for the blobs of one device, and the copies under way.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "actzip/memory.hpp"
#include "actzip/stream.hpp"
#include "store/arena.hpp"
#include "store/fetch_queue.hpp"
#include "store/held_memory.hpp"
#include "store/store.hpp"

namespace actzip::store {

class PinnedLane;

/// Bytes that were encoded on a device. They are in `device` until they have left it, then in `host`, and also in
/// `copy` while they are back.
struct PinnedBlob final : FetchQueue::Entry {
  PinnedBlob(std::shared_ptr<PinnedLane> its_lane, std::size_t its_size) : Entry(its_size), lane(std::move(its_lane)) {}
  PinnedBlob(const PinnedBlob&) = delete;
  PinnedBlob& operator=(const PinnedBlob&) = delete;
  ~PinnedBlob();

  const std::shared_ptr<PinnedLane> lane;

  // Guarded by the lane.
  HeldMemory::Part held;       ///< what `device` counts for in a budget
  HeldMemory::Part copy_held;  ///< what `copy` counts for
  Allocation device;
  Allocation host;
  Allocation copy;
  Stream writer;
  Stream home;  ///< the stream in whose order `copy` was allocated
  std::shared_ptr<void> encoded;
  std::shared_ptr<void> left;     ///< the point at which `host` has the bytes
  std::shared_ptr<void> arrived;  ///< the point at which `copy` has them
  bool is_waiting = false;        ///< whether it waits for its turn to leave the device
  bool was_read = false;          ///< whether `copy` was given to a stream that waits for it
  LeaveNote note;
};

/// Moves the blobs of one device to pinned memory and back. Thread-safe. It waits for the device only where stated
/// below, and does not block other threads meanwhile.
///
/// A framework's allocator of device memory may itself wait for a thread that uses the lane, for instance for the lock
/// of an interpreter, if it records who allocates. So the lane is unlocked while it allocates or frees device memory.
/// Pinned memory, events and copies are asked for under its lock: they must wait for no such thread.
class PinnedLane {
 public:
  PinnedLane(const PinnedOptions& options, Memory& memory, Copier& copier);
  PinnedLane(const PinnedLane&) = delete;
  PinnedLane& operator=(const PinnedLane&) = delete;
  /// Waits for the copies, so that the memory they use is free afterwards.
  ~PinnedLane();

  /// `blob` has received its device memory.
  void note_reserved(const PinnedBlob& blob);

  /// Without a budget, waits until the device has encoded what was put away a window of bytes ago.
  void put_away(PinnedBlob& blob, const Stream& writer, const LeaveNote& note);

  Allocation fetch(PinnedBlob& blob, const Stream& reader);
  void foresee(const Stream& reader);
  void freed(PinnedBlob& blob) noexcept;

  /// Frees some device memory: drops what can be brought back again, waits for a copy, or starts one. Throws the Error
  /// of that copy if nothing else helps either; returns false if there is nothing to try.
  bool give_way();

  void trim();
  /// From now on, blocks of pinned memory are given back when they are empty.
  void close();
  std::string take_notice();
  [[nodiscard]] StoreStats stats() const;

 private:
  /// A copy under way. It keeps its pinned memory until it has ended, and device memory that nothing else protects.
  struct Flight {
    Allocation host;
    Allocation device;
    std::size_t bytes = 0;
    HeldMemory::Part held;       ///< what the device memory that it frees counts for
    std::shared_ptr<void> done;  ///< null if the device gave no point; it ends with the next one
  };
  using Flights = std::deque<Flight>;

  /// Holds the mutex. When it is released, what let_go() has collected is freed.
  class Lock {
   public:
    explicit Lock(PinnedLane& lane) : lane_(lane) { lock(); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock() { unlock(); }
    void lock() { lane_.mutex_.lock(); }
    void unlock() {
      const std::vector<Allocation> freed = std::exchange(lane_.freed_, {});
      lane_.mutex_.unlock();
    }

   private:
    PinnedLane& lane_;
  };

  /// Releases the mutex for as long as it lives.
  class Unlocked {
   public:
    explicit Unlocked(Lock& lock) : lock_(lock) { lock_.unlock(); }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;
    ~Unlocked() { lock_.lock(); }

   private:
    Lock& lock_;
  };

  std::shared_ptr<void> point_in(const Stream& stream);
  bool wait_for_end(const Flights& flights, const Stream& stream) noexcept;
  void wait_outside(Lock& lock, const std::shared_ptr<void>& point);
  void let_leave(Lock& lock);
  void let_leave_for_budget();
  void stop_waiting(PinnedBlob& blob) noexcept;
  bool try_leave(PinnedBlob& blob);
  void leave(PinnedBlob& blob);
  Allocation on_device(const PinnedBlob& blob, const Stream& reader);
  Allocation brought_back(Lock& lock, PinnedBlob& blob, const Stream& reader);
  bool bring_now(Lock& lock, PinnedBlob& blob, const Stream& reader);
  Allocation allocate_unlocked(Lock& lock, std::size_t bytes, const Stream& reader);
  Allocation needed_memory(Lock& lock, std::size_t bytes, const Stream& reader);
  void bring(PinnedBlob& blob, Allocation copy, const Stream& reader);
  void ask_ahead(Lock& lock, const Stream& reader);
  bool ask_for_one(Lock& lock, const Stream& reader);
  void drop_copy(PinnedBlob& blob) noexcept;
  bool keep_for_inward(const Allocation& copy) noexcept;
  bool drop_one(bool ahead) noexcept;
  void let_go(Allocation bytes) noexcept;
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

  mutable std::mutex mutex_;  ///< guards everything below
  FetchQueue order_;
  PinnedBlob* next_leaving_ = nullptr;  ///< the first that waits for its turn; those put away after it wait as well
  std::size_t waiting_bytes_ = 0;
  Flights leaving_;  ///< in the order of their stream, like coming_
  Flights coming_;
  std::size_t leaving_bytes_ = 0;
  std::vector<PinnedBlob*> copies_;  ///< blobs that are back on the device, in the order in which they were requested
  std::size_t copy_bytes_ = 0;
  std::vector<Allocation> freed_;  ///< device memory to free when the lane is unlocked
  bool can_ask_ = true;            ///< as far as is known, the device has room for what is requested ahead
  bool has_said_ = false;
  std::string notice_;
  StoreStats stats_;
};

}  // namespace actzip::store
