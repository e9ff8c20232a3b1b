// Blocks of pinned memory, which an arena divides.
#pragma once

#include <atomic>
#include <memory>

#include "actzip/memory.hpp"
#include "store/blocks.hpp"

namespace actzip::store {

/// Allocates blocks from a copier. After the copier fails, it is not asked again until a block has been given back:
/// asking is slow.
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
