#include "store/arena.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "actzip/error.hpp"

namespace actzip::store {

namespace {

constexpr std::size_t kUnit = 64;      // a cache line, so that no two blobs share one
constexpr std::size_t kMostSeen = 16;  // ranges inspected in one list: their sizes are all within 1/32 of each other
constexpr std::size_t kMostBytes = std::numeric_limits<std::size_t>::max() / 4;

std::size_t rounded_to_units(std::size_t bytes) {
  if (bytes > kMostBytes) {
    throw Error(ErrorCode::store_failure, fmt::format("store: {} bytes (allowed: up to {})", bytes, kMostBytes));
  }
  return std::max(kUnit, (bytes + kUnit - 1) / kUnit * kUnit);
}

}  // namespace

struct Arena::Block {
  Allocation memory;
  std::size_t num_used = 0;  ///< ranges handed out
  std::size_t reached = 0;   ///< how much of it, from its start, was ever handed out
  bool is_own = false;       ///< made for one request above the usual size
  Range* first = nullptr;
  Blocks::iterator self{};
};

/// A part of a block, handed out or free. Both neighbours of a free range are handed out.
struct Arena::Range {
  std::byte* data = nullptr;
  std::size_t size = 0;
  Block* block = nullptr;
  Range* before = nullptr;  ///< its neighbours in the block
  Range* after = nullptr;
  Range* previous = nullptr;  ///< in its list, if free or spare
  Range* next = nullptr;
  bool is_free = false;
};

struct Arena::Release {
  std::shared_ptr<Arena> arena;
  Range* range;

  void operator()(void* /*data*/) noexcept {
    // A weak pointer may keep this object alive, but must not keep the arena.
    const std::shared_ptr<Arena> last = std::move(arena);
    last->release(range);
  }
};

std::shared_ptr<Arena> Arena::create(std::shared_ptr<BlockSource> source, std::size_t block_bytes) {
  return std::shared_ptr<Arena>(new Arena(std::move(source), rounded_to_units(block_bytes)));
}

Arena::Arena(std::shared_ptr<BlockSource> source, std::size_t block_bytes)
    : source_(std::move(source)), block_bytes_(block_bytes) {}

Arena::~Arena() = default;

Allocation Arena::allocate(std::size_t bytes) {
  const std::size_t size = rounded_to_units(bytes);
  Blocks leaving;  // declared before the lock, so that blocks are given back after it is released
  Range* range = nullptr;
  {
    const std::lock_guard lock(mutex_);
    need_spare_ranges(2);  // for a new block and for the rest of a range, so that nothing can fail half-way
    range = find(size);
    if (range == nullptr) range = add_block(size, leaving);
    range = hand_out(range, size);
  }
  std::byte* const data = range->data;
  // If there is no memory for the control block, shared_ptr calls Release, which frees the range.
  return {data, bytes, std::shared_ptr<void>(data, Release{shared_from_this(), range})};
}

void Arena::trim() {
  Blocks leaving;
  const std::lock_guard lock(mutex_);
  remove_empty(leaving);
  recent_peak_ = stats_.used_bytes;
}

void Arena::close() {
  trim();
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
}

Arena::Stats Arena::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

std::size_t Arena::list_of(std::size_t bytes) {
  const std::size_t units = bytes / kUnit;
  if (units < 32) return units;
  const auto exponent = static_cast<std::size_t>(std::bit_width(units)) - 1;
  return 32 * (exponent - 4) + (units >> (exponent - 5)) % 32;
}

/// Returns the smallest free range of at least `bytes`, give or take the width of a list; null if there is none.
Arena::Range* Arena::find(std::size_t bytes) const {
  const std::size_t own = list_of(bytes);
  if (Range* range = best_in(own, bytes)) return range;
  // Every range in a higher list is large enough.
  std::size_t word = (own + 1) / 64;
  if (word == not_empty_.size()) return nullptr;
  std::uint64_t bits = not_empty_[word] & (~std::uint64_t{0} << ((own + 1) % 64));
  while (bits == 0) {
    if (++word == not_empty_.size()) return nullptr;
    bits = not_empty_[word];
  }
  return best_in(word * 64 + static_cast<std::size_t>(std::countr_zero(bits)), bytes);
}

Arena::Range* Arena::best_in(std::size_t list, std::size_t bytes) const {
  Range* best = nullptr;
  std::size_t seen = 0;
  for (Range* range = free_[list]; range != nullptr && seen < kMostSeen; range = range->next, ++seen) {
    if (range->size == bytes) return range;
    if (range->size > bytes && (best == nullptr || range->size < best->size)) best = range;
  }
  return best;
}

/// Adds a block for `bytes` and returns it as a free range.
Arena::Range* Arena::add_block(std::size_t bytes, Blocks& leaving) {
  const std::size_t size = std::max(bytes, block_bytes_);
  // Sizes that change from step to step leave behind blocks that fit nothing, so keep no more than a quarter above the
  // peak.
  const std::size_t peak = std::max(recent_peak_, stats_.used_bytes + bytes);
  keep_within(peak + peak / 4, size, leaving);
  Blocks made(1);
  try {
    made.front().memory = source_->block(size);
  } catch (const Error&) {
    remove_empty(leaving);
    if (leaving.empty()) throw;
    leaving.clear();  // right now: the source may need what they hold
    made.front().memory = source_->block(size);
  }
  blocks_.splice(blocks_.end(), made);
  Block& block = blocks_.back();
  block.self = std::prev(blocks_.end());
  block.is_own = size > block_bytes_;
  Range* const range = take_spare();
  *range = {.data = block.memory.data, .size = block.memory.size / kUnit * kUnit, .block = &block};
  block.first = range;
  stats_.block_bytes += block.memory.size;
  ++stats_.blocks;
  link(range);
  return range;
}

Arena::Range* Arena::hand_out(Range* range, std::size_t bytes) {
  Block& block = *range->block;
  if (block.num_used == 0 && block.reached > 0) source_->forget_contents(block.memory.data, block.reached);
  unlink(range);
  if (range->size > bytes) {
    Range* const rest = take_spare();
    *rest = {.data = range->data + bytes,
             .size = range->size - bytes,
             .block = &block,
             .before = range,
             .after = range->after};
    if (rest->after != nullptr) rest->after->before = rest;
    range->after = rest;
    range->size = bytes;
    link(rest);
  }
  ++block.num_used;
  block.reached = std::max(block.reached, static_cast<std::size_t>(range->data - block.memory.data) + bytes);
  stats_.used_bytes += bytes;
  recent_peak_ = std::max(recent_peak_, stats_.used_bytes);
  stats_.peak_used_bytes = std::max(stats_.peak_used_bytes, recent_peak_);
  return range;
}

void Arena::release(Range* range) noexcept {
  Blocks leaving;
  const std::lock_guard lock(mutex_);
  Block& block = *range->block;
  --block.num_used;
  stats_.used_bytes -= range->size;
  if (range->after != nullptr && range->after->is_free) {
    unlink(range->after);
    join_with_next(range);
  }
  if (range->before != nullptr && range->before->is_free) {
    range = range->before;
    unlink(range);
    join_with_next(range);
  }
  link(range);
  if (is_closed_ && block.num_used == 0) remove(block.self, leaving);
}

void Arena::link(Range* range) noexcept {
  const std::size_t list = list_of(range->size);
  range->is_free = true;
  range->previous = nullptr;
  range->next = free_[list];
  if (range->next != nullptr) range->next->previous = range;
  free_[list] = range;
  not_empty_[list / 64] |= std::uint64_t{1} << (list % 64);
}

void Arena::unlink(Range* range) noexcept {
  const std::size_t list = list_of(range->size);
  range->is_free = false;
  if (range->next != nullptr) range->next->previous = range->previous;
  if (range->previous != nullptr) {
    range->previous->next = range->next;
    return;
  }
  free_[list] = range->next;
  if (range->next == nullptr) not_empty_[list / 64] &= ~(std::uint64_t{1} << (list % 64));
}

void Arena::need_spare_ranges(std::size_t count) {
  while (num_spare_ < count) {
    Range& range = ranges_.emplace_back();
    range.next = std::exchange(spare_, &range);
    ++num_spare_;
  }
}

Arena::Range* Arena::take_spare() noexcept {
  --num_spare_;
  return std::exchange(spare_, spare_->next);
}

void Arena::join_with_next(Range* range) noexcept {
  Range* const next = range->after;
  range->size += next->size;
  range->after = next->after;
  if (range->after != nullptr) range->after->before = range;
  next->next = std::exchange(spare_, next);
  ++num_spare_;
}

/// Removes an empty block.
void Arena::remove(Blocks::iterator block, Blocks& leaving) noexcept {
  unlink(block->first);
  block->first->next = std::exchange(spare_, block->first);
  ++num_spare_;
  stats_.block_bytes -= block->memory.size;
  --stats_.blocks;
  leaving.splice(leaving.end(), blocks_, block);
}

void Arena::remove_empty(Blocks& leaving) noexcept { keep_within(0, 0, leaving); }

/// Removes empty blocks until a new one of `wanted_bytes` is within the limit, starting with those that were made for
/// one request.
void Arena::keep_within(std::size_t limit_bytes, std::size_t wanted_bytes, Blocks& leaving) noexcept {
  for (const bool only_own : {true, false}) {
    for (auto block = blocks_.begin(); block != blocks_.end();) {
      if (stats_.block_bytes + wanted_bytes <= limit_bytes) return;
      const auto candidate = block++;
      if (candidate->num_used == 0 && candidate->is_own == only_own) remove(candidate, leaving);
    }
  }
}

}  // namespace actzip::store
