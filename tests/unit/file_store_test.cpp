#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "actzip/error.hpp"
#include "expect_error.hpp"
#include "failing_calls.hpp"
#include "file_fixture.hpp"
#include "store/store.hpp"

namespace actzip::store {
namespace {

using test::FailingCalls;
using test::has_stamp;
using test::resident_file_bytes;
using test::stamp;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kOddBytes = 100 * kKiB + 7;

class FileStoreTest : public test::FileFixture {
 protected:
  /// Blobs of odd sizes, one after the other.
  std::vector<Allocation> forward(Store& store, std::uint64_t num_blobs) {
    std::vector<Allocation> blobs;
    for (std::uint64_t i = 0; i < num_blobs; ++i) blobs.push_back(kept(store, kOddBytes + 1000 * i, i));
    return blobs;
  }
};

TEST_F(FileStoreTest, GivesBackWhatWasPutAway) {
  const auto store = file_store(folder);
  std::vector<Allocation> blobs = forward(*store, 20);
  EXPECT_GT(store->stats().away_bytes, 20 * kOddBytes);
  EXPECT_EQ(store->stats().device_bytes, 0U);
  for (std::uint64_t i = 20; i-- > 0;) {
    EXPECT_TRUE(comes_back(*store, blobs[i], i));
    blobs.pop_back();
  }
  EXPECT_EQ(store->stats().away_bytes, 0U);
  EXPECT_EQ(store->stats().device_bytes, 0U);
  EXPECT_EQ(store->stats().ahead_bytes, 0U);
  EXPECT_EQ(store->stats().fetches, 20U);
  EXPECT_LT(store->stats().peak_device_bytes, 2 * (kOddBytes + 20000));
}

TEST_F(FileStoreTest, SmallAndEmptyBlobsShareAPage) {
  const auto store = file_store(folder);
  std::vector<Allocation> blobs;
  for (std::uint64_t i = 0; i < 300; ++i) blobs.push_back(kept(*store, i, i));
  for (std::uint64_t i = 0; i < 300; ++i) EXPECT_TRUE(comes_back(*store, blobs[i], i));
}

TEST_F(FileStoreTest, ABlobOfNoBytesTakesNothingAlongWhenItIsFreed) {
  const auto store = file_store(folder);
  Allocation nothing = kept(*store, 0, 1);
  const Allocation held = kept(*store, 10 * kOddBytes, 2);
  ASSERT_EQ(fsync(open_files().front()), 0);  // what is on the disk can leave memory
  nothing = {};
  EXPECT_TRUE(comes_back(*store, held, 2));
  EXPECT_EQ(store->stats().waits, 0U);
}

TEST_F(FileStoreTest, WhatIsPutAwayLeavesTheProcess) {
  constexpr std::size_t kLarge = std::size_t{32} << 20U;
  const auto store = file_store(folder);
  const std::size_t before = resident_file_bytes();
  const Allocation reserved = store->reserve(kLarge, Stream(), memory);
  stamp(reserved, 1);
  EXPECT_GE(resident_file_bytes(), before + kLarge);
  Allocation held = store->put_away(reserved, Stream(), memory);
  EXPECT_LT(resident_file_bytes(), before + kLarge / 8);
  EXPECT_TRUE(comes_back(*store, held, 1));
  EXPECT_GE(resident_file_bytes(), before + kLarge);
  held = {};
  const_cast<Allocation&>(reserved) = {};
  EXPECT_LT(resident_file_bytes(), before + kLarge / 8);
}

TEST_F(FileStoreTest, WhatHasLeftMemoryComesFromTheDisk) {
  const auto store = file_store(folder, /*window_bytes=*/0);
  const std::vector<Allocation> blobs = forward(*store, 20);
  if (!evict()) GTEST_SKIP() << "the temporary folder lies in memory";
  for (std::uint64_t i = 20; i-- > 0;) EXPECT_TRUE(comes_back(*store, blobs[i], i));
  EXPECT_GT(store->stats().waits, 0U);
  EXPECT_LE(store->stats().waits, 20U);
}

TEST_F(FileStoreTest, ReadsAheadInReverseOrderEachOnceWithinTheWindow) {
  constexpr std::size_t kWindow = 4 * kOddBytes;
  const auto store = file_store(folder, kWindow);
  std::vector<Allocation> blobs;
  for (std::uint64_t i = 0; i < 20; ++i) blobs.push_back(kept(*store, kOddBytes, i));
  const FailingCalls calls;
  EXPECT_TRUE(comes_back(*store, blobs[19], 19));
  EXPECT_EQ(calls.count("madvise:willneed"), 4);
  EXPECT_EQ(store->stats().ahead_bytes, kWindow);
  EXPECT_TRUE(comes_back(*store, blobs[18], 18));
  EXPECT_EQ(calls.count("madvise:willneed"), 5);
  for (std::uint64_t i = 18; i-- > 0;) EXPECT_TRUE(comes_back(*store, blobs[i], i));
  EXPECT_EQ(calls.count("madvise:willneed"), 19);
  EXPECT_EQ(store->stats().peak_ahead_bytes, kWindow);
  EXPECT_EQ(store->stats().ahead_bytes, 0U);
}

TEST_F(FileStoreTest, ReadsAheadAgainWhenTheGraphWasKept) {
  const auto store = file_store(folder);
  const std::vector<Allocation> blobs = forward(*store, 10);
  for (int pass = 0; pass < 3; ++pass) {
    const FailingCalls calls;
    for (std::uint64_t i = 10; i-- > 0;) {
      EXPECT_TRUE(comes_back(*store, blobs[i], i));
      EXPECT_TRUE(comes_back(*store, blobs[i], i));  // two operators read it
    }
    EXPECT_EQ(calls.count("madvise:willneed"), 9) << "pass " << pass;
  }
  EXPECT_EQ(store->stats().fetches, 60U);
}

TEST_F(FileStoreTest, AnyOrderOfFetchesWillDo) {
  std::mt19937 random(1);
  const auto store = file_store(folder, 3 * kOddBytes);
  for (int round = 0; round < 20; ++round) {
    std::vector<Allocation> blobs = forward(*store, 12);
    std::vector<std::uint64_t> order(blobs.size());
    for (std::uint64_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    for (const std::uint64_t i : order) {
      EXPECT_TRUE(comes_back(*store, blobs[i], i));
      if (random() % 2 == 0) blobs[i] = {};
    }
    EXPECT_LE(store->stats().peak_ahead_bytes, 3 * kOddBytes);
  }
  EXPECT_EQ(store->stats().device_bytes, 0U);
  EXPECT_EQ(store->stats().ahead_bytes, 0U);
}

TEST_F(FileStoreTest, AGraphThatIsKeptAndForgottenDoesNotEndReadingAhead) {
  const auto store = file_store(folder, 2 * kOddBytes);
  const std::vector<Allocation> forgotten{kept(*store, kOddBytes, 1), kept(*store, kOddBytes, 2)};
  for (int step = 0; step < 3; ++step) {
    std::vector<Allocation> blobs;
    for (std::uint64_t i = 0; i < 4; ++i) blobs.push_back(kept(*store, kOddBytes, i));
    const FailingCalls calls;
    for (std::uint64_t i = 4; i-- > 0;) {
      EXPECT_TRUE(comes_back(*store, blobs[i], i));
      blobs.pop_back();
    }
    EXPECT_GE(calls.count("madvise:willneed"), 3) << "step " << step;
  }
}

TEST_F(FileStoreTest, StepsWithoutBackwardLeaveNothing) {
  const auto store = file_store(folder);
  for (int step = 0; step < 5; ++step) (void)forward(*store, 10);
  const auto size_after_one = file_status().st_size;
  for (int step = 0; step < 5; ++step) (void)forward(*store, 10);
  EXPECT_EQ(file_status().st_size, size_after_one);
  EXPECT_EQ(store->stats().away_bytes, 0U);
  store->trim();
  EXPECT_EQ(file_status().st_size, 0);
}

TEST_F(FileStoreTest, AnExceptionBeforePutAwayLosesNothing) {
  const auto store = file_store(folder);
  const Allocation held = kept(*store, kOddBytes, 1);
  EXPECT_THROW(
      {
        const Allocation reserved = store->reserve(kOddBytes, Stream(), memory);
        throw std::runtime_error("the codec refused it");
      },
      std::runtime_error);
  EXPECT_EQ(store->stats().device_bytes, 0U);
  const Allocation other = kept(*store, kOddBytes, 2);
  EXPECT_TRUE(comes_back(*store, held, 1));
  EXPECT_TRUE(comes_back(*store, other, 2));
}

TEST_F(FileStoreTest, BlobsOutliveTheStore) {
  auto store = file_store(folder);
  std::vector<Allocation> blobs = forward(*store, 5);
  const Allocation read = fetched(*store, blobs[4]);
  store.reset();
  EXPECT_TRUE(has_stamp(read, 4));
  EXPECT_TRUE(has_stamp(blobs[3], 3));
  EXPECT_EQ(open_files().size(), 1U);
  const_cast<Allocation&>(read) = {};
  blobs.clear();
  EXPECT_TRUE(open_files().empty());
}

TEST_F(FileStoreTest, IsForTheCpu) {
  const auto store = file_store(folder);
  const Stream cuda = Stream::cuda(nullptr);
  const Allocation held = kept(*store, 100, 1);
  test::expect_error(ErrorCode::device_mismatch,
                     "store: bytes of a CUDA device are given to a store in a file (allowed: tensors of the CPU, or "
                     "offload 'host')",
                     [&] { (void)store->reserve(100, cuda, memory); });
  EXPECT_THROW((void)store->fetch(held, cuda, cuda, memory), Error);
}

TEST_F(FileStoreTest, BlocksThatLeftMemoryAreNotReadToBeWritten) {
  const auto store = file_store(folder);
  (void)forward(*store, 10);
  evict();
  const FailingCalls calls;
  const std::vector<Allocation> blobs = forward(*store, 10);
  EXPECT_EQ(calls.count("fallocate:zero"), 1);
  for (std::uint64_t i = 10; i-- > 0;) EXPECT_TRUE(comes_back(*store, blobs[i], i));
}

/// Steps of a thread: forward, sometimes an exception, sometimes no backward, sometimes two of them.
void train_at_random(Store& store, Memory& memory, std::uint32_t seed, std::atomic<std::int64_t>& steps) {
  std::mt19937 random(seed);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(test::stress_seconds());
  for (int step = 0; step < 15 || std::chrono::steady_clock::now() < until; ++step, ++steps) {
    struct Held {
      Allocation bytes;
      std::uint64_t seed;
    };
    std::vector<Held> blobs(random() % 40);
    for (Held& blob : blobs) {
      blob.seed = (std::uint64_t{seed} << 40U) + random();
      blob.bytes = store.reserve(random() % (std::size_t{1} << (random() % 20U)), Stream(), memory);
      stamp(blob.bytes, blob.seed);
      if (random() % 20 != 0) blob.bytes = store.put_away(std::move(blob.bytes), Stream(), memory);
      if (random() % 20 == 0) blob = {};
    }
    if (random() % 10 == 0) continue;
    if (random() % 3 == 0) std::shuffle(blobs.begin(), blobs.end(), random);
    for (auto passes = 1 + random() % 2; passes-- > 0;) {
      for (auto blob = blobs.rbegin(); blob != blobs.rend(); ++blob) {
        if (blob->bytes.owner == nullptr) continue;
        ASSERT_TRUE(has_stamp(store.fetch(blob->bytes, Stream(), Stream(), memory), blob->seed));
        if (passes == 0) blob->bytes = {};
      }
    }
    if (random() % 50 == 0) store.trim();
  }
}

TEST_F(FileStoreTest, ThreadsGetTheirOwnBytes) {
  const auto store = file_store(folder, std::size_t{1} << 20U);
  std::atomic<std::int64_t> steps = 0;
  std::vector<std::thread> threads;
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] { train_at_random(*store, memory, seed, steps); });
  }
  for (std::thread& thread : threads) thread.join();
  const StoreStats stats = store->stats();
  EXPECT_EQ(stats.device_bytes + stats.away_bytes + stats.ahead_bytes, 0U);
  EXPECT_LE(stats.peak_ahead_bytes, std::size_t{1} << 20U);
  if (test::stress_seconds() > 0) {
    std::printf("%lld steps, %llu fetches, %llu waits\n", static_cast<long long>(steps.load()),
                static_cast<unsigned long long>(stats.fetches), static_cast<unsigned long long>(stats.waits));
  }
}

}  // namespace
}  // namespace actzip::store
