// An allocator that divides a few large blocks into ranges of many sizes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>

#include "actzip/memory.hpp"
#include "store/blocks.hpp"

namespace actzip::store {

/// Divides blocks into ranges and joins free neighbours. Training repeats itself, so empty blocks wait for the next
/// step. The arena's own notes lie outside the blocks: it never touches their pages. Thread-safe.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  struct Stats {
    std::size_t used_bytes = 0;       ///< handed out, each rounded up to a multiple of 64
    std::size_t peak_used_bytes = 0;  ///< the most at any time
    std::size_t block_bytes = 0;
    std::size_t blocks = 0;
  };

  /// A request above `block_bytes` gets a block of its own.
  static std::shared_ptr<Arena> create(std::shared_ptr<BlockSource> source, std::size_t block_bytes);

  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  /// Returns bytes that start at a multiple of 64. Their owner keeps the arena alive and gives the bytes back, on any
  /// thread and in any order. Needs one heap allocation of a few words. Throws Error(store_failure) if no block is
  /// available.
  Allocation allocate(std::size_t bytes);

  /// Gives back empty blocks.
  void trim();

  /// The same, and from now on blocks are given back as soon as they are empty.
  void close();

  [[nodiscard]] Stats stats() const;

 private:
  struct Block;
  struct Range;
  struct Release;
  using Blocks = std::list<Block>;

  // Free ranges are in lists by size: one list for each number of units below 32, and above that 32 lists for each
  // power of two.
  static constexpr std::size_t kLists = std::size_t{32} * 54;

  Arena(std::shared_ptr<BlockSource> source, std::size_t block_bytes);
  static std::size_t list_of(std::size_t bytes);
  Range* find(std::size_t bytes) const;
  Range* best_in(std::size_t list, std::size_t bytes) const;
  Range* add_block(std::size_t bytes, Blocks& leaving);
  Range* hand_out(Range* range, std::size_t bytes);
  void release(Range* range) noexcept;
  void link(Range* range) noexcept;
  void unlink(Range* range) noexcept;
  void need_spare_ranges(std::size_t count);
  Range* take_spare() noexcept;
  void join_with_next(Range* range) noexcept;
  void remove(Blocks::iterator block, Blocks& leaving) noexcept;
  void remove_empty(Blocks& leaving) noexcept;
  void keep_within(std::size_t limit_bytes, std::size_t wanted_bytes, Blocks& leaving) noexcept;

  const std::shared_ptr<BlockSource> source_;
  const std::size_t block_bytes_;
  mutable std::mutex mutex_;
  Blocks blocks_;
  std::deque<Range> ranges_;  ///< as many as were ever needed at once; those not in use are spare
  Range* spare_ = nullptr;
  std::size_t num_spare_ = 0;
  std::array<Range*, kLists> free_{};
  std::array<std::uint64_t, kLists / 64> not_empty_{};  ///< one bit for each list of free_
  Stats stats_;
  std::size_t recent_peak_ = 0;  ///< peak of used_bytes since the last trim()
  bool is_closed_ = false;
};

}  // namespace actzip::store
