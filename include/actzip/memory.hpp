// The memory that a session uses: an adapter allocates it from its framework.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "actzip/stream.hpp"

namespace actzip {

/// A piece of memory and what keeps it alive.
struct Allocation {
  std::byte* data = nullptr;  ///< aligned to 16 bytes
  std::size_t size = 0;
  std::shared_ptr<void> owner;  ///< the adapter's own object; the memory is freed with its last copy
};

/// Copies bytes between one device and pinned host memory, on two streams of its own, beside the device's other work.
/// Optional: see Memory::copier(). A Copier lives as long as its Memory and may be called from any thread. Sessions
/// call it and Memory::point_in() under a lock, so these must not wait for a thread that uses a session.
class Copier {
 public:
  Copier() = default;
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;
  virtual ~Copier() = default;

  /// Allocates host memory that the device reads and writes at full speed. The caller frees it only after every copy
  /// that uses it has finished. Throws Error(store_failure) if there is none.
  virtual Allocation allocate_pinned(std::size_t bytes) = 0;

  /// The stream for copies from the device, and the stream for copies to it.
  [[nodiscard]] virtual Stream outward() const = 0;
  [[nodiscard]] virtual Stream inward() const = 0;

  /// Enqueues a copy on one of these two streams. Both sides must stay alive until it has run. Throws
  /// Error(cuda_failure) if the device refuses it.
  virtual void copy(std::byte* dst, const std::byte* src, std::size_t bytes, const Stream& stream) = 0;

  /// Makes everything enqueued on `stream` from now on run after `point`, which came from Memory::point_in() and is not
  /// null. Does not block the calling thread.
  virtual void let_wait(const Stream& stream, const std::shared_ptr<void>& point) = 0;

  /// Whether the device has reached `point`, which is not null.
  virtual bool has_passed(const std::shared_ptr<void>& point) = 0;

  /// Protects `bytes`, which came from Memory::allocate(): after they are freed, their memory is not reused before
  /// `stream` has run what was enqueued on it by then.
  virtual void keep_for(const Allocation& bytes, const Stream& stream) = 0;
};

/// An adapter's allocator. It outlives every blob made with it and may be called from any thread.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() = default;

  /// Allocates bytes on the device of `stream`, to be used there in the order of `stream`.
  virtual Allocation allocate(std::size_t bytes, const Stream& stream) = 0;

  /// Allocates bytes, all 0, that the device of `stream` can write and the host can read at any time without waiting.
  virtual Allocation allocate_visible(std::size_t bytes, const Stream& stream) = 0;

  /// Call it before `reader` reads what `writer` wrote; both are streams of the same device. Makes `reader` wait, and
  /// keeps the bytes alive until it has read them. Does not block the calling thread.
  virtual void hand_over(const Allocation& bytes, const Stream& writer, const Stream& reader) = 0;

  /// Returns a point in the order of `stream`, for wait_for(): after everything enqueued so far. Null if there is
  /// nothing to wait for: on the CPU, or while the stream is captured into a graph.
  virtual std::shared_ptr<void> point_in(const Stream& stream) = 0;

  /// Blocks the calling thread until the device has reached `point`, which is not null.
  virtual void wait_for(const std::shared_ptr<void>& point) = 0;

  /// Returns the Copier for bytes used on `stream`. Null if there is none: on the CPU, while the stream is captured
  /// into a graph, and with an adapter that has no such streams.
  virtual Copier* copier(const Stream& stream);

  /// Returns how many bytes are still available on the device of `stream`, as far as can be told now. Unless
  /// overridden, returns what the host has left.
  [[nodiscard]] virtual std::size_t available_bytes(const Stream& stream) const;

  /// Whether `bytes` are unchanged since they were handed out, as far as the framework knows. If restored values were
  /// changed, the session decodes them again. A framework that cannot tell returns true.
  [[nodiscard]] virtual bool untouched(const Allocation& bytes) const;
};

/// Whether files in `folder` lie in memory, as in /dev/shm: offloading there saves none. Throws Error(store_failure) if
/// there is no such folder.
bool is_in_memory(const std::string& folder);

inline Copier* Memory::copier(const Stream& /*stream*/) { return nullptr; }
inline bool Memory::untouched(const Allocation& /*bytes*/) const { return true; }

}  // namespace actzip
