// Stores, in which encoded bytes wait between forward and backward.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "actzip/memory.hpp"
#include "actzip/stream.hpp"
#include "store/held_memory.hpp"

namespace actzip::store {

/// What a store holds now, the most that it held, and what it has done since it was made.
struct StoreStats {
  std::size_t device_bytes = 0;  ///< of blobs in the memory of their device, including those on their way out of it
  std::size_t peak_device_bytes = 0;
  std::size_t away_bytes = 0;  ///< of blobs in the file or in pinned memory, and nowhere else
  std::size_t peak_away_bytes = 0;
  std::size_t ahead_bytes = 0;  ///< requested ahead of fetch() and not fetched yet
  std::size_t peak_ahead_bytes = 0;
  std::size_t pinned_bytes = 0;   ///< pinned host memory that this store occupies
  std::uint64_t copied_out = 0;   ///< bytes from a device to pinned memory
  std::uint64_t copied_in = 0;    ///< bytes from pinned memory back to a device
  std::uint64_t passed_over = 0;  ///< bytes that stayed because copies were behind or pinned memory was used up
  std::uint64_t fetches = 0;      ///< fetches of bytes that were put away
  std::uint64_t waits = 0;        ///< fetches of bytes that nobody had requested early enough
  std::uint64_t host_waits = 0;   ///< how often the thread that runs forward waited for a device
};

/// Notified when the bytes of a site leave their device: `step` is set to `value`.
struct LeaveNote {
  std::atomic<std::int64_t>* step = nullptr;
  std::int64_t value = 0;
  void tell() const {
    if (step != nullptr) *step = value;
  }
};

/// Holds encoded bytes as blobs. A blob goes through reserve(), encoding, put_away(), and fetch() as often as backward
/// needs it; it may be freed at any of these points. Blobs keep alive what they need of their store. May be called from
/// any thread.
class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  /// Whether the store accepts bytes that are used on `stream`, as things are now. Do not give it any others.
  [[nodiscard]] virtual bool takes(const Stream& stream, Memory& memory) const;

  /// Forward: returns memory on the device of `stream`, into which to encode. `held` is what the bytes count for in a
  /// budget, for as long as they are on the device.
  virtual Allocation reserve(std::size_t bytes, const Stream& stream, Memory& memory, HeldMemory::Part held = {}) = 0;

  /// Forward, after the encoding was enqueued on `writer`: returns what holds the bytes from now on. They may be read
  /// only after fetch(). `bytes` came from reserve() of this store. `note` must outlive the result.
  virtual Allocation put_away(Allocation bytes, const Stream& writer, Memory& memory, const LeaveNote& note = {});

  /// Backward: returns the same bytes, which were written on `writer`, readable on `reader`. `held` came from
  /// put_away().
  virtual Allocation fetch(const Allocation& held, const Stream& writer, const Stream& reader, Memory& memory) = 0;

  /// Backward is reading on `reader` something that is in another store; this one may start to fetch ahead.
  virtual void foresee(const Stream& reader, Memory& memory);

  /// Counts `bytes` against the budget that this store was made for, once bytes that leave the device have made room
  /// for them. Returns an empty part if that cannot make enough room. Throws Error if it could, but a copy failed or
  /// had no place to go.
  virtual HeldMemory::Part make_room(std::size_t bytes);

  /// Returns a sentence that the user should read, once; usually empty.
  virtual std::string take_notice();

  /// Frees what is kept for the next step and not in use now.
  virtual void trim();

  [[nodiscard]] virtual StoreStats stats() const = 0;
};

inline bool Store::takes(const Stream& /*stream*/, Memory& /*memory*/) const { return true; }
inline Allocation Store::put_away(Allocation bytes, const Stream& /*writer*/, Memory& /*memory*/,
                                  const LeaveNote& /*note*/) {
  return bytes;
}
inline void Store::foresee(const Stream& /*reader*/, Memory& /*memory*/) {}
inline HeldMemory::Part Store::make_room(std::size_t /*bytes*/) { return {}; }
inline std::string Store::take_notice() { return {}; }
inline void Store::trim() {}

/// The store that leaves bytes on the device, in the framework's memory. It reports no statistics; the framework does.
Store& device_store();

inline constexpr std::size_t kBlockBytes = std::size_t{64} << 20U;

inline constexpr std::size_t kWindowBytes = std::size_t{256} << 20U;

/// Keeps bytes of CPU tensors in a file in `folder`, for more of them than fit into memory. The file has no name, so
/// nothing is left of it when the process ends. It grows by `block_bytes`. put_away() starts writing and takes the
/// pages out of the process; fetch() requests up to `window_bytes` of what was put away before, which backward needs
/// next.
///
/// Throws Error(store_failure) if no file can be made; reserve() throws it if the disk is full. If the disk refuses to
/// write bytes, fetch() throws it for every blob of that file, and a new file is begun. Any device but the CPU is
/// Error(device_mismatch).
std::shared_ptr<Store> file_store(const std::string& folder, std::size_t window_bytes = kWindowBytes,
                                  std::size_t block_bytes = kBlockBytes);

struct PinnedOptions {
  /// For each device: how much is fetched ahead of backward; how much of what was fetched stays until it is freed; and,
  /// without a budget, how much of what was put away last stays, and how much may be on its way out.
  std::size_t window_bytes = kWindowBytes;
  std::size_t block_bytes = kBlockBytes;
  /// Counts what is on a device. Null: no limit.
  std::shared_ptr<HeldMemory> budget = nullptr;
};

/// Keeps bytes of devices that have a Copier in pinned host memory. Copies run beside everything else, and device
/// memory is free when they end. fetch() also brings back what was put away before, which backward needs next.
///
/// What was put away last stays on its device, since it is needed first. Without a budget, a step is not held up: what
/// cannot leave as fast as it is made stays, and so does what finds no pinned memory. With a budget, what was put away
/// first leaves when three quarters of it are used, and make_room() waits for copies.
///
/// Bytes belong to the process that put them away: fetch() in a forked process throws Error(store_failure).
std::shared_ptr<Store> pinned_store(const PinnedOptions& options = {});

}  // namespace actzip::store
