// A device simulated by threads: streams that lag behind the host, an allocator that reuses memory in stream order, and
// copies that take time. What would be a race on a real device is a race here too, and is counted.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "actzip/memory.hpp"

namespace actzip::test {

/// A point in a stream's order.
class FakeEvent {
 public:
  void pass();
  void wait();
  bool has_passed();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_passed_ = false;
};

/// Runs tasks in order on its own thread.
class FakeStream {
 public:
  FakeStream();
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;
  ~FakeStream();

  void enqueue(std::function<void()> task);
  std::shared_ptr<FakeEvent> record();
  void synchronize() { record()->wait(); }

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool is_closed_ = false;
  std::thread thread_;
};

/// Refuses some calls, at pseudo-random positions that depend only on the number of calls.
class Refusals {
 public:
  /// Refuses about one call in `one_in`; 0: none.
  void set(std::uint32_t one_in) { one_in_ = one_in; }
  /// Refuses the call with this number from now on, counted from 1, and no other.
  void only(int number) { until_refusal_ = number; }
  bool next();

 private:
  std::atomic<std::uint32_t> one_in_ = 0;
  std::atomic<std::uint32_t> calls_ = 0;
  std::atomic<int> until_refusal_ = 0;
};

/// The memory of one or more simulated devices and of their host.
class FakeDevice final : public Memory {
 public:
  explicit FakeDevice(int num_devices = 1);
  ~FakeDevice() override;

  Stream new_stream(int device = 0);
  /// Enqueues the work of a program: fills bytes, or checks them, when the stream reaches it.
  void write(const Stream& stream, const Allocation& bytes, std::uint64_t seed);
  void read(const Stream& stream, const Allocation& bytes, std::uint64_t seed);
  void delay(const Stream& stream, int microseconds);
  void synchronize();

  Allocation allocate(std::size_t bytes, const Stream& stream) override;
  Allocation allocate_visible(std::size_t bytes, const Stream& stream) override { return allocate(bytes, stream); }
  void hand_over(const Allocation& bytes, const Stream& writer, const Stream& reader) override;
  std::shared_ptr<void> point_in(const Stream& stream) override;
  void wait_for(const std::shared_ptr<void>& point) override;
  Copier* copier(const Stream& stream) override;

  // Counts errors: bytes that a stream found changed, or used after they had been freed.
  std::atomic<int> faults = 0;
  /// Bytes not yet returned to the allocators: device_bytes of all devices, pinned_bytes of the host.
  std::atomic<std::size_t> device_bytes = 0;
  std::atomic<std::size_t> peak_device_bytes = 0;
  std::atomic<std::size_t> pinned_bytes = 0;
  std::atomic<int> pinned_blocks = 0;  ///< handed out so far, in total

  std::atomic<std::size_t> device_limit = SIZE_MAX;
  std::atomic<std::size_t> pinned_limit = SIZE_MAX;
  std::atomic<int> copy_microseconds = 0;  ///< duration of each copy
  std::atomic<bool> is_capturing = false;
  Refusals refused_copies;
  Refusals refused_points;
  Refusals refused_allocations;
  Refusals refused_keeps;
  /// Called whenever device memory is allocated or freed; set it while nobody uses the device.
  std::function<void()> in_allocator;

 private:
  class DeviceCopier;
  struct Block;

  static FakeStream& stream_of(const Stream& stream) { return *static_cast<FakeStream*>(stream.handle()); }
  void free_block(const std::shared_ptr<Block>& block);
  void look_what_is_free();
  void wait_for_freed();
  void note_live(const std::byte* data, std::size_t bytes);
  void note_dead(const std::byte* data);
  bool is_live(const std::byte* data, std::size_t bytes);

  /// Freed memory that may be reused once streams other than its own have passed these points.
  struct Freed {
    std::vector<std::shared_ptr<FakeEvent>> points;
    std::size_t bytes = 0;
  };

  std::mutex mutex_;
  std::vector<Freed> freed_;
  std::map<const std::byte*, std::size_t> live_;
  std::vector<std::unique_ptr<FakeStream>> streams_;
  std::vector<std::unique_ptr<DeviceCopier>> copiers_;
  std::unique_ptr<FakeStream> reaper_;
};

}  // namespace actzip::test
