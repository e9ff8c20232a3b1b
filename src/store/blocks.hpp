// Sources of large blocks of host memory, which an arena divides.
#pragma once

#include <cstddef>
#include <memory>

#include "actzip/memory.hpp"

namespace actzip::store {

/// Where an arena gets its blocks. May be called from any thread.
class BlockSource {
 public:
  BlockSource() = default;
  BlockSource(const BlockSource&) = delete;
  BlockSource& operator=(const BlockSource&) = delete;
  virtual ~BlockSource() = default;

  /// Returns at least `bytes`, starting at a page; they are given back with the last copy of the owner. Throws
  /// Error(store_failure) and leaves nothing behind.
  virtual Allocation block(std::size_t bytes) = 0;

  /// Called before a block that has held something is written again: these bytes, from its start, are no longer needed.
  virtual void forget_contents(const std::byte* data, std::size_t size) noexcept;
};

inline void BlockSource::forget_contents(const std::byte* /*data*/, std::size_t /*size*/) noexcept {}

}  // namespace actzip::store
