// Blocks of pinned memory, for an arena to divide.
#pragma once

#include <atomic>
#include <memory>

#include "actzip/memory.hpp"
#include "store/blocks.hpp"

namespace actzip::store {

/// From a copier. Once it has none to give, it is not asked again before a block has come back: asking is slow.
class PinnedBlocks final : public BlockSource, public std::enable_shared_from_this<PinnedBlocks> {
 public:
  explicit PinnedBlocks(Copier& copier) : copier_(copier) {}

  Allocation block(std::size_t bytes) override;

 private:
  struct Release;

  Copier& copier_;
  std::atomic<bool> is_exhausted_ = false;
};

}  // namespace actzip::store
