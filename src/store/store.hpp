// Where encoded bytes wait between forward and backward.
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

/// What a store holds now, the most that it held, and what it did since it was made.
struct StoreStats {
  std::size_t device_bytes = 0;  ///< of blobs in the memory of their device, also on their way out of it
  std::size_t peak_device_bytes = 0;
  std::size_t away_bytes = 0;  ///< of blobs in the file or in pinned memory, and nowhere else
  std::size_t peak_away_bytes = 0;
  std::size_t ahead_bytes = 0;  ///< asked for ahead of fetch() and not fetched yet
  std::size_t peak_ahead_bytes = 0;
  std::size_t pinned_bytes = 0;   ///< of the host, taken for this store
  std::uint64_t copied_out = 0;   ///< bytes, from a device to pinned memory
  std::uint64_t copied_in = 0;    ///< bytes, back
  std::uint64_t passed_over = 0;  ///< bytes that stayed, because copies were behind or there was no pinned memory
  std::uint64_t fetches = 0;      ///< of bytes that were put away
  std::uint64_t waits = 0;        ///< of these, those that nobody had asked for early enough to be there
  std::uint64_t host_waits = 0;   ///< for a device, which the thread that runs forward waited for
};

/// Told when the bytes of a site leave their device: `step` gets `value`.
struct LeaveNote {
  std::atomic<std::int64_t>* step = nullptr;
  std::int64_t value = 0;
  void tell() const {
    if (step != nullptr) *step = value;
  }
};

/// A blob goes through reserve(), encoding, put_away(), and fetch() as often as backward asks for it; it may be freed
/// at any point of that way. Blobs keep alive what they need of their store. May be called from any thread.
class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  /// Whether it is for bytes that are used on `stream`, as things are now. Others are not to be given to it.
  [[nodiscard]] virtual bool takes(const Stream& stream, Memory& memory) const;

  /// Forward: memory on the device of `stream` for encoding into. `held` is what it counts for in a budget, as long as
  /// it is there.
  virtual Allocation reserve(std::size_t bytes, const Stream& stream, Memory& memory, HeldMemory::Part held = {}) = 0;

  /// Forward, when the encoding has been enqueued on `writer`: what holds the bytes from now on. They may be read after
  /// fetch() only. `bytes` came from reserve() of this store. `note` outlives what is given back.
  virtual Allocation put_away(Allocation bytes, const Stream& writer, Memory& memory, const LeaveNote& note = {});

  /// Backward: the same bytes, readable on `reader`; they were written on `writer`. `held` came from put_away().
  virtual Allocation fetch(const Allocation& held, const Stream& writer, const Stream& reader, Memory& memory) = 0;

  /// Backward asks on `reader` for something that is in another store.
  virtual void foresee(const Stream& reader, Memory& memory);

  /// Counts `bytes` into the budget that this store was made for, when bytes that leave the device have made room for
  /// them. Nothing if they cannot. Throws Error if they could, and the copy failed or had no place to go.
  virtual HeldMemory::Part make_room(std::size_t bytes);

  /// What its user should know, once, in a sentence; mostly empty.
  virtual std::string take_notice();

  /// Gives back what is kept for the next step and in no use now.
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

/// The store that leaves bytes on the device, in the framework's memory. It counts nothing: the framework does.
Store& device_store();

inline constexpr std::size_t kBlockBytes = std::size_t{64} << 20U;

inline constexpr std::size_t kWindowBytes = std::size_t{256} << 20U;

/// Keeps bytes of the CPU in a file in `folder`, for more of them than fit into memory. The file has no name, so that
/// nothing is left of it when the process ends. It grows by `block_bytes`. put_away() starts writing and takes the
/// bytes out of the process; fetch() asks for up to `window_bytes` of what was put away before, which backward needs
/// next. Throws Error store_failure if there can be no file; a full disk is one in reserve(). What a disk refused to
/// write is one in fetch(), and a new file is begun. Another device than the CPU is Error device_mismatch.
std::shared_ptr<Store> file_store(const std::string& folder, std::size_t window_bytes = kWindowBytes,
                                  std::size_t block_bytes = kBlockBytes);

struct PinnedOptions {
  /// Of each device: so much is fetched ahead of backward; so much that was fetched stays until it is freed; and
  /// without a budget, so much of what was put away last stays, and so much may be on its way out.
  std::size_t window_bytes = kWindowBytes;
  std::size_t block_bytes = kBlockBytes;
  /// Counts what is on a device. Null: nothing limits it.
  std::shared_ptr<HeldMemory> budget = nullptr;
};

/// Keeps bytes of devices that have a Copier in pinned memory of the host. Copies run beside everything else, and the
/// device memory is free when they end. fetch() brings back what was put away before, which backward needs next.
///
/// What was put away last stays on its device, since it is needed first. Without a budget a step is not held up: what
/// cannot leave as fast as it is made stays, too, and so does what finds no pinned memory. With one, what was put away
/// first leaves when three quarters of it are taken, and make_room() waits for copies.
///
/// Bytes belong to the process that put them away: fetch() in one that was forked is an Error(store_failure).
std::shared_ptr<Store> pinned_store(const PinnedOptions& options = {});

}  // namespace actzip::store
