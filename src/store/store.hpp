// Where encoded bytes wait between forward and backward.
#pragma once

#include <cstddef>

#include "actzip/memory.hpp"
#include "actzip/stream.hpp"

namespace actzip::store {

class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  /// Forward: memory on the device of `stream` for encoding into.
  virtual Allocation reserve(std::size_t bytes, const Stream& stream, Memory& memory) = 0;

  /// Backward: the same bytes, readable on `reader`; they were written on `writer`.
  virtual Allocation fetch(const Allocation& held, const Stream& writer, const Stream& reader, Memory& memory) = 0;
};

/// The store that leaves bytes on the device.
Store& device_store();

}  // namespace actzip::store
