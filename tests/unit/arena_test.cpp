#include "store/arena.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "anonymous_blocks.hpp"
#include "stamped.hpp"

namespace actzip::store {
namespace {

using test::has_stamp;
using test::stamp;

constexpr std::size_t kMiB = std::size_t{1} << 20U;
constexpr std::size_t kBlock = 2 * kMiB;

/// Counts blocks, and refuses them if told to.
class CountedBlocks final : public BlockSource {
 public:
  Allocation block(std::size_t bytes) override {
    ++asked;
    if (live_bytes + bytes > limit_bytes) throw Error(ErrorCode::store_failure, "no more");
    const Allocation inner = inner_->block(bytes);
    live_bytes += inner.size;
    return {inner.data, inner.size,
            std::shared_ptr<void>(inner.data, [this, inner](void*) { live_bytes -= inner.size; })};
  }
  void forget_contents(const std::byte* /*data*/, std::size_t /*size*/) noexcept override { ++forgotten; }

  std::atomic<std::size_t> live_bytes = 0;
  std::atomic<std::size_t> limit_bytes = std::size_t{1} << 40U;
  std::atomic<int> asked = 0;
  std::atomic<int> forgotten = 0;

 private:
  std::shared_ptr<BlockSource> inner_ = anonymous_blocks();
};

class ArenaTest : public testing::Test {
 protected:
  std::shared_ptr<CountedBlocks> source = std::make_shared<CountedBlocks>();
  std::shared_ptr<Arena> arena = Arena::create(source, kBlock);
};

TEST_F(ArenaTest, StartsAtMultiplesOf64AndKeepsTheSizeAskedFor) {
  std::vector<Allocation> held;
  for (const std::size_t bytes : {0, 1, 63, 64, 65, 1000, 4096}) {
    held.push_back(arena->allocate(bytes));
    EXPECT_EQ(held.back().size, bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(held.back().data) % 64, 0U);
    EXPECT_NE(held.back().owner, nullptr);
  }
  EXPECT_EQ(arena->stats().used_bytes, 64U + 64 + 64 + 64 + 128 + 1024 + 4096);
  EXPECT_EQ(arena->stats().blocks, 1U);
}

TEST_F(ArenaTest, FreeNeighboursBecomeOne) {
  for (const auto& order : std::vector<std::vector<int>>{{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {1, 3, 0, 2}}) {
    std::vector<Allocation> held;
    for (int i = 0; i < 4; ++i) held.push_back(arena->allocate(kBlock / 4));
    for (const int i : order) held[static_cast<std::size_t>(i)] = {};
    const Allocation whole = arena->allocate(kBlock);
    EXPECT_EQ(arena->stats().blocks, 1U);
  }
}

TEST_F(ArenaTest, TakesTheRangeThatFitsBest) {
  std::vector<Allocation> held;
  for (const std::size_t bytes : {4096, 64, 1024, 64, 2048, 64}) held.push_back(arena->allocate(bytes));
  const std::byte* const small = held[2].data;
  const std::byte* const middle = held[4].data;
  held[0] = held[2] = held[4] = {};
  EXPECT_EQ(arena->allocate(1024).data, small);
  const Allocation first = arena->allocate(1000);
  EXPECT_EQ(first.data, small);
  EXPECT_EQ(arena->allocate(1025).data, middle);
}

TEST_F(ArenaTest, AStepThatRepeatsItselfNeedsNoNewBlock) {
  std::mt19937 random(1);
  std::vector<std::size_t> sizes(300);
  for (std::size_t& size : sizes) size = 1 + random() % (64U << 10U);
  int asked = 0;
  for (int step = 0; step < 5; ++step) {
    std::vector<Allocation> held;
    held.reserve(sizes.size());
    for (const std::size_t size : sizes) held.push_back(arena->allocate(size));
    if (step == 0) asked = source->asked;
    EXPECT_EQ(source->asked, asked);
    while (!held.empty()) held.pop_back();
    EXPECT_EQ(arena->stats().used_bytes, 0U);
  }
  EXPECT_GT(source->forgotten, 0);  // it is told that the blocks start anew
}

TEST_F(ArenaTest, WhatIsLargerThanABlockGetsItsOwn) {
  const Allocation large = arena->allocate(3 * kBlock + 1);
  EXPECT_EQ(arena->stats().blocks, 1U);
  EXPECT_GE(arena->stats().block_bytes, 3 * kBlock + 1);
  stamp(large, 1);
  const Allocation small = arena->allocate(kBlock);
  stamp(small, 2);
  EXPECT_TRUE(has_stamp(large, 1));
}

TEST_F(ArenaTest, SizesThatGrowLeaveNoBlocksBehind) {
  std::size_t most = 0;
  for (std::size_t bytes = 2 * kBlock; bytes < 20 * kBlock; bytes += kBlock) {
    const Allocation large = arena->allocate(bytes);
    most = std::max(most, arena->stats().block_bytes - bytes);
  }
  EXPECT_LE(most, 20 * kBlock / 4);
}

TEST_F(ArenaTest, GivesEmptyBlocksBackWhenTrimmed) {
  const Allocation kept = arena->allocate(1);
  { const Allocation other = arena->allocate(kBlock); }
  EXPECT_EQ(arena->stats().blocks, 2U);
  arena->trim();
  EXPECT_EQ(arena->stats().blocks, 1U);
  EXPECT_EQ(source->live_bytes, arena->stats().block_bytes);
  EXPECT_EQ(arena->stats().peak_used_bytes, kBlock + 64);
  EXPECT_NE(arena->allocate(kBlock).data, nullptr);
}

TEST_F(ArenaTest, BytesKeepTheArenaAlive) {
  Allocation kept = arena->allocate(100);
  const std::weak_ptr<void> watch = kept.owner;
  stamp(kept, 3);
  const std::weak_ptr<Arena> left = arena;
  arena.reset();
  EXPECT_FALSE(left.expired());
  EXPECT_TRUE(has_stamp(kept, 3));
  kept = {};
  EXPECT_TRUE(left.expired()) << "a weak pointer to the bytes keeps the arena";
  EXPECT_EQ(source->live_bytes, 0U);
}

TEST_F(ArenaTest, AClosedArenaGivesBlocksBackAsTheyBecomeEmpty) {
  Allocation kept = arena->allocate(100);
  Allocation other = arena->allocate(kBlock);
  arena->close();
  EXPECT_EQ(arena->stats().blocks, 2U);
  other = {};
  EXPECT_EQ(arena->stats().blocks, 1U);
  kept = {};
  EXPECT_EQ(source->live_bytes, 0U);
}

TEST_F(ArenaTest, ARefusedBlockLeavesEverythingAsItWas) {
  const Allocation kept = arena->allocate(kBlock);
  stamp(kept, 4);
  source->limit_bytes = source->live_bytes.load();
  const Arena::Stats before = arena->stats();
  EXPECT_THROW((void)arena->allocate(64), Error);
  EXPECT_EQ(arena->stats().used_bytes, before.used_bytes);
  EXPECT_EQ(arena->stats().blocks, before.blocks);
  source->limit_bytes = 10 * kBlock;
  EXPECT_NE(arena->allocate(64).data, nullptr);
  EXPECT_TRUE(has_stamp(kept, 4));
}

TEST_F(ArenaTest, EmptyBlocksGoBackBeforeARequestIsRefused) {
  std::vector<Allocation> held;
  for (int i = 0; i < 4; ++i) held.push_back(arena->allocate(kBlock));
  source->limit_bytes = 4 * kBlock;
  held.clear();
  EXPECT_NE(arena->allocate(3 * kBlock).data, nullptr);
}

TEST_F(ArenaTest, MoreThanThereCanBeIsRefused) {
  EXPECT_THROW((void)arena->allocate(~std::size_t{0}), Error);
  EXPECT_THROW((void)arena->allocate(std::size_t{1} << 60U), Error);
  EXPECT_NE(arena->allocate(64).data, nullptr);
}

/// Allocates and frees at random, and looks after the contents of all it holds.
void hold_at_random(Arena& arena, std::uint32_t seed, std::atomic<std::int64_t>& rounds) {
  std::mt19937 random(seed);
  struct Held {
    Allocation bytes;
    std::uint64_t seed;
  };
  std::vector<Held> held;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(test::stress_seconds());
  for (std::int64_t round = 0; round < 4000 || std::chrono::steady_clock::now() < until; ++round) {
    const auto kind = random() % 100;
    const std::size_t number = held.empty() ? 0 : random() % held.size();
    if (kind < 55 && held.size() < 200) {
      const std::size_t bytes = random() % (std::size_t{1} << (random() % 21U + (random() % 200U == 0 ? 3U : 0U)));
      held.push_back({arena.allocate(bytes), (std::uint64_t{seed} << 40U) + static_cast<std::uint64_t>(round)});
      stamp(held.back().bytes, held.back().seed);
    } else if (kind == 99) {
      arena.trim();
    } else if (kind == 98) {
      while (!held.empty()) held.pop_back();  // backward
    } else if (!held.empty()) {
      ASSERT_TRUE(has_stamp(held[number].bytes, held[number].seed));
      std::swap(held[number], held.back());
      held.pop_back();
    }
    ++rounds;
  }
  for (const Held& left : held) ASSERT_TRUE(has_stamp(left.bytes, left.seed));
}

TEST_F(ArenaTest, ThreadsNeverShareBytes) {
  std::atomic<std::int64_t> rounds = 0;
  std::vector<std::thread> threads;
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] { hold_at_random(*arena, seed, rounds); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(arena->stats().used_bytes, 0U);
  arena->trim();
  EXPECT_EQ(arena->stats().blocks, 0U);
  EXPECT_EQ(source->live_bytes, 0U);
  if (test::stress_seconds() > 0) std::printf("%lld rounds\n", static_cast<long long>(rounds.load()));
}

}  // namespace
}  // namespace actzip::store
