// Where encoded bytes wait between forward and backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "actzip/memory.hpp"
#include "actzip/stream.hpp"

namespace actzip::store {

/// What a store holds now, and the most that it held.
struct StoreStats {
  std::size_t device_bytes = 0;  ///< of blobs in the memory of their device
  std::size_t peak_device_bytes = 0;
  std::size_t file_bytes = 0;  ///< of blobs in the file
  std::size_t peak_file_bytes = 0;
  std::size_t ahead_bytes = 0;  ///< asked for ahead of fetch() and not fetched yet
  std::size_t peak_ahead_bytes = 0;
  std::uint64_t fetches = 0;  ///< of bytes that were in the file
  std::uint64_t waits = 0;    ///< of these, those that had to wait for the disk
};

/// A blob goes through reserve(), encoding, put_away(), and fetch() as often as backward asks for it; it may be freed
/// at any point of that way. Blobs keep alive what they need of their store. May be called from any thread.
class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  /// Forward: memory on the device of `stream` for encoding into.
  virtual Allocation reserve(std::size_t bytes, const Stream& stream, Memory& memory) = 0;

  /// Forward, when the encoding has been enqueued on `writer`: what holds the bytes from now on. They may be read after
  /// fetch() only. `bytes` came from reserve() of this store.
  virtual Allocation put_away(Allocation bytes, const Stream& writer, Memory& memory);

  /// Backward: the same bytes, readable on `reader`; they were written on `writer`. `held` came from put_away().
  virtual Allocation fetch(const Allocation& held, const Stream& writer, const Stream& reader, Memory& memory) = 0;

  /// Gives back what is kept for the next step and in no use now.
  virtual void trim();

  [[nodiscard]] virtual StoreStats stats() const = 0;
};

inline Allocation Store::put_away(Allocation bytes, const Stream& /*writer*/, Memory& /*memory*/) { return bytes; }
inline void Store::trim() {}

/// The store that leaves bytes on the device, in the framework's memory. It counts nothing: the framework does.
Store& device_store();

inline constexpr std::size_t kBlockBytes = std::size_t{64} << 20U;

inline constexpr std::size_t kFileWindowBytes = std::size_t{256} << 20U;

/// Keeps bytes of the CPU in a file in `folder`, for more of them than fit into memory. The file has no name, so that
/// nothing is left of it when the process ends. It grows by `block_bytes`. put_away() starts writing and takes the
/// bytes out of the process; fetch() asks for up to `window_bytes` of what was put away before, which backward needs
/// next. Throws Error store_failure if there can be no file; a full disk is one in reserve(). What a disk refused to
/// write is one in fetch(), and a new file is begun. Another device than the CPU is Error device_mismatch.
std::shared_ptr<Store> file_store(const std::string& folder, std::size_t window_bytes = kFileWindowBytes,
                                  std::size_t block_bytes = kBlockBytes);

}  // namespace actzip::store
