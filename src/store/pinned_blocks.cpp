#include "store/pinned_blocks.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <utility>

#include "actzip/error.hpp"

namespace actzip::store {

struct PinnedBlocks::Release {
  std::shared_ptr<PinnedBlocks> source;
  Allocation memory;
  void operator()(void* /*data*/) noexcept {
    memory = {};
    source->is_exhausted_ = false;
  }
};

Allocation PinnedBlocks::block(std::size_t bytes) {
  if (is_exhausted_) {
    throw Error(ErrorCode::store_failure,
                fmt::format("store: no {} bytes of pinned memory: there was none left before", bytes));
  }
  // Frameworks round allocations up to this size anyway, so the arena may use the rest.
  const std::size_t size = std::bit_ceil(bytes);
  Allocation memory;
  try {
    memory = copier_.allocate_pinned(size);
  } catch (const Error&) {
    is_exhausted_ = true;
    throw;
  }
  std::byte* const data = memory.data;
  return {data, size, std::shared_ptr<void>(data, Release{shared_from_this(), std::move(memory)})};
}

}  // namespace actzip::store
