// How the session gets memory: from the framework that runs it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "actzip/stream.hpp"

namespace actzip {

/// Bytes on a device, and what keeps them alive.
struct Allocation {
  std::byte* data = nullptr;  ///< a multiple of 16
  std::size_t size = 0;
  std::shared_ptr<void> owner;  ///< the adapter's own object; the bytes are freed with its last copy
};

/// Copies between one device and pinned host memory, on two streams of their own: beside what else the device does. An
/// adapter that has none is asked for none. It lives as long as its Memory, and may be called from any thread.
class Copier {
 public:
  Copier() = default;
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;
  virtual ~Copier() = default;

  /// Host memory that the device reads and writes at full speed. Whoever frees it has seen to it that no copy still
  /// uses it. Throws Error(store_failure) if there is none.
  virtual Allocation allocate_pinned(std::size_t bytes) = 0;

  /// The stream of copies from the device, and that of copies to it.
  [[nodiscard]] virtual Stream outward() const = 0;
  [[nodiscard]] virtual Stream inward() const = 0;

  /// Enqueues a copy on one of the two; both sides stay until it has run. Throws Error(cuda_failure) if it is refused.
  virtual void copy(std::byte* dst, const std::byte* src, std::size_t bytes, const Stream& stream) = 0;

  /// What is enqueued on `stream` from now on runs after `point`, which came from Memory::point_in() and is not null.
  /// It does not block the calling thread.
  virtual void let_wait(const Stream& stream, const std::shared_ptr<void>& point) = 0;

  /// Whether the device has come to that point. Not with null.
  virtual bool has_passed(const std::shared_ptr<void>& point) = 0;

  /// Bytes of Memory::allocate(), if they are freed, are not used anew until `stream` has run what is enqueued on it by
  /// then.
  virtual void keep_for(const Allocation& bytes, const Stream& stream) = 0;
};

/// An adapter's memory. It outlives every blob made with it, and may be called from any thread.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() = default;

  /// Bytes on the device of `stream`, to be used there in the order of `stream`.
  virtual Allocation allocate(std::size_t bytes, const Stream& stream) = 0;

  /// Bytes, all 0, that the device of `stream` can write and the host can read at any time, without waiting.
  virtual Allocation allocate_visible(std::size_t bytes, const Stream& stream) = 0;

  /// Called before what was written on `writer` is read on `reader`, another stream of the same device: makes `reader`
  /// wait, and keeps the bytes until it has read them. It does not block the calling thread.
  virtual void hand_over(const Allocation& bytes, const Stream& writer, const Stream& reader) = 0;

  /// A point in the order of `stream`, for wait_for(): what was enqueued so far. Null where there is nothing to wait
  /// for: on the CPU, or while the stream is captured into a graph.
  virtual std::shared_ptr<void> point_in(const Stream& stream) = 0;

  /// Blocks the calling thread until the device has come to that point. Not with null.
  virtual void wait_for(const std::shared_ptr<void>& point) = 0;

  /// What copies bytes that are used on `stream` to the host and back. Null where nothing does: on the CPU, while the
  /// stream is captured into a graph, and with an adapter that has no such streams.
  virtual Copier* copier(const Stream& stream);

  /// Bytes that can still be had on the device of `stream`, as far as can be told now; without an answer, what the host
  /// has left.
  [[nodiscard]] virtual std::size_t available_bytes(const Stream& stream) const;

  /// Whether the framework knows of no change to `bytes` since they were handed out. Restored values that were changed
  /// are restored again. A framework that cannot tell says true.
  [[nodiscard]] virtual bool untouched(const Allocation& bytes) const;
};

/// Whether files in `folder` lie in memory, as in /dev/shm: offloading there saves none. Throws Error store_failure if
/// there is no such folder.
bool is_in_memory(const std::string& folder);

inline Copier* Memory::copier(const Stream& /*stream*/) { return nullptr; }
inline bool Memory::untouched(const Allocation& /*bytes*/) const { return true; }

}  // namespace actzip
