#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "actzip/error.hpp"
#include "expect_error.hpp"
#include "pinned_fixture.hpp"
#include "store/store.hpp"

namespace actzip::store {
namespace {

using test::kBlob;
using test::kSmallWindow;
using test::PinnedBudgetTest;
using test::PinnedStoreTest;

TEST_F(PinnedStoreTest, GivesBackWhatWasPutAwayAndKeepsTheLast) {
  std::vector<Allocation> blobs = slow_forward(40);
  EXPECT_EQ(store->stats().away_bytes + store->stats().passed_over, 36 * kBlob) << "a window of them stays";
  EXPECT_GT(store->stats().away_bytes, 0U);
  EXPECT_EQ(device.device_bytes, 40 * kBlob - store->stats().away_bytes);
  backward(blobs);
  const StoreStats stats = store->stats();
  EXPECT_EQ(stats.fetches, 40U);
  EXPECT_EQ(stats.waits, 0U) << "each was asked for ahead";
  EXPECT_EQ(stats.copied_in, stats.copied_out);
  EXPECT_LE(stats.peak_ahead_bytes, kSmallWindow);
  EXPECT_EQ(stats.away_bytes + stats.ahead_bytes, 0U);
  device.synchronize();
  EXPECT_EQ(device.device_bytes, 0U);
}

TEST_F(PinnedStoreTest, WhatFitsIntoTheWindowStays) {
  std::vector<Allocation> blobs = forward(4);
  backward(blobs);
  EXPECT_EQ(store->stats().copied_out, 0U);
  EXPECT_EQ(device.pinned_blocks, 0);
}

TEST_F(PinnedStoreTest, ForwardDoesNotRunAwayFromADeviceThatIsBehind) {
  std::vector<Allocation> blobs;
  for (std::uint64_t i = 0; i < 12; ++i) {
    device.delay(stream, 8000);
    blobs.push_back(kept(kBlob, i));
  }
  EXPECT_GT(store->stats().host_waits, 0U);
  EXPECT_EQ(store->stats().passed_over, 0U) << "the device is slow, and not the copies";
  backward(blobs);
}

TEST_F(PinnedStoreTest, WhatCannotLeaveFastEnoughStays) {
  device.copy_microseconds = 20000;
  std::vector<Allocation> blobs = forward(30);
  EXPECT_GT(store->stats().passed_over, 10 * kBlob);
  EXPECT_GT(store->stats().copied_out, 0U);
  EXPECT_GE(store->stats().copied_out + store->stats().passed_over, 22 * kBlob) << "two windows stay, or one";
  EXPECT_LE(store->stats().copied_out + store->stats().passed_over, 26 * kBlob);
  device.copy_microseconds = 0;
  backward(blobs);
}

TEST_F(PinnedStoreTest, OneThatIsLargerThanTheWindowLeavesAndComesBackAhead) {
  std::vector<Allocation> blobs;
  for (std::uint64_t i = 0; i < 6; ++i) blobs.push_back(kept(2 * kSmallWindow, i));
  EXPECT_EQ(store->stats().copied_out + store->stats().passed_over, 10 * kSmallWindow);
  backward(blobs);
  EXPECT_LE(store->stats().waits, 1U);
}

TEST_F(PinnedStoreTest, TheLastLargeOneStaysSinceItIsNeededFirst) {
  std::vector<Allocation> blobs = slow_forward(20);
  blobs.push_back(kept(5 * kSmallWindow, 20));
  device.synchronize();
  blobs.push_back(kept(kBlob, 21));
  device.synchronize();
  EXPECT_EQ(store->stats().copied_out, 20 * kBlob) << "all that came before it";
  backward(blobs);
}

TEST_F(PinnedStoreTest, PinnedMemoryIsUsedAgainInTheNextStep) {
  for (int step = 0; step < 12; ++step) {
    std::vector<Allocation> blobs = forward(40);
    backward(blobs);
    device.synchronize();
  }
  EXPECT_LE(device.pinned_blocks, 3) << "as many as all blobs of a step fill";
  EXPECT_EQ(store->stats().pinned_bytes, device.pinned_bytes);
  store->trim();
  EXPECT_EQ(device.pinned_bytes, 0U);
}

TEST_F(PinnedStoreTest, AKeptGraphIsReadAgain) {
  const std::vector<Allocation> blobs = forward(40);
  for (int pass = 0; pass < 3; ++pass) {
    for (std::uint64_t i = 40; i-- > 0;) {
      read(blobs[i], i);
      read(blobs[i], i);  // two operators share it
    }
    device.synchronize();
    EXPECT_LE(device.device_bytes, 3 * kSmallWindow + store->stats().passed_over) << "what was read does not pile up";
  }
  EXPECT_LE(store->stats().waits, 12U) << "of 240: where a pass begins";
}

TEST_F(PinnedStoreTest, AnyOrderWillDoOnAnyStream) {
  std::mt19937 random(1);
  const std::vector<Stream> readers{stream, device.new_stream(), device.new_stream()};
  for (int round = 0; round < 20; ++round) {
    std::vector<Allocation> blobs = forward(20);
    std::vector<std::uint64_t> order(blobs.size());
    for (std::uint64_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    for (const std::uint64_t i : order) {
      read(blobs[i], i, readers[random() % readers.size()]);
      if (random() % 2 == 0) read(blobs[i], i, readers[random() % readers.size()]);
      if (random() % 2 == 0) blobs[i] = {};
    }
  }
  EXPECT_LE(store->stats().peak_ahead_bytes, kSmallWindow);
}

TEST_F(PinnedStoreTest, WhatWasFetchedAheadAndIsNotWantedIsFreedInTime) {
  device.copy_microseconds = 500;
  for (int round = 0; round < 5; ++round) {
    const std::vector<Allocation> blobs = forward(20);
    read(blobs[15], 15);  // those before it are on their way
  }
  EXPECT_GT(store->stats().copied_in, 0U);
}

TEST_F(PinnedStoreTest, StepsWithoutBackwardLeaveNothing) {
  for (int step = 0; step < 5; ++step) (void)forward(20);
  EXPECT_EQ(store->stats().away_bytes, 0U);
  device.synchronize();
  EXPECT_EQ(device.device_bytes, 0U);
}

TEST_F(PinnedStoreTest, BackwardIsForeseenByWhatIsInNoStore) {
  std::vector<Allocation> blobs = forward(20);
  EXPECT_EQ(store->stats().copied_in, 0U);
  store->foresee(stream, device);
  EXPECT_GT(store->stats().ahead_bytes, 0U);
  const std::uint64_t ahead = store->stats().copied_in;
  store->foresee(stream, device);
  EXPECT_EQ(store->stats().copied_in, ahead) << "once";
  backward(blobs);
  EXPECT_EQ(store->stats().waits, 0U);
}

TEST_F(PinnedStoreTest, WhatIsSavedDuringBackwardMakesNothingComeTwice) {
  std::vector<Allocation> blobs = slow_forward(40);
  while (!blobs.empty()) {
    read(blobs.back(), blobs.size() - 1);
    blobs.pop_back();
    const Allocation again = kept(kBlob, 100 + blobs.size());  // a checkpoint runs its forward once more
    if (blobs.size() % 2 == 0) store->foresee(stream, device);
    read(again, 100 + blobs.size());
  }
  const StoreStats stats = store->stats();
  EXPECT_EQ(stats.waits, 0U);
  EXPECT_LE(stats.copied_in, stats.copied_out);
  EXPECT_LE(stats.peak_ahead_bytes, kSmallWindow);
}

TEST_F(PinnedStoreTest, AGraphThatIsKeptAndForgottenDoesNotEndFetchingAhead) {
  const std::vector<Allocation> forgotten = slow_forward(20);
  read(forgotten[15], 15);
  const std::uint64_t waits = store->stats().waits;
  for (int step = 0; step < 3; ++step) {
    std::vector<Allocation> blobs = slow_forward(20);
    backward(blobs);
  }
  EXPECT_LE(store->stats().waits, waits + 3) << "once in a step";
}

TEST_F(PinnedStoreTest, BlobsOutliveTheStore) {
  std::vector<Allocation> blobs = forward(20);
  Allocation last = blobs.front();
  const auto of_store = store;
  store.reset();
  blobs.clear();
  store = of_store;
  read(last, 0);
}

TEST_F(PinnedStoreTest, TheStoreMayGoWhileCopiesRun) {
  device.copy_microseconds = 3000;
  std::vector<Allocation> blobs = forward(20);
  store.reset();
  blobs.clear();
  EXPECT_EQ(device.pinned_bytes, 0U) << "when the copies had ended";
}

TEST_F(PinnedStoreTest, IsNotForTheCpuNorForCaptures) {
  EXPECT_TRUE(store->takes(stream, device));
  EXPECT_FALSE(store->takes(Stream(), device));
  const Allocation held = kept(kBlob, 1);
  device.is_capturing = true;
  EXPECT_FALSE(store->takes(stream, device));
  test::expect_error(ErrorCode::store_failure,
                     "store: bytes that were put away are asked for while a graph is captured (allowed: forward and "
                     "backward in the same capture, or neither)",
                     [&] { (void)store->fetch(held, stream, stream, device); });
  store->foresee(stream, device);
  device.is_capturing = false;
  read(held, 1);
}

TEST_F(PinnedStoreTest, AForkedProcessIsToldThatTheBytesAreNotIts) {
  const Allocation held = kept(kBlob, 1);
  const pid_t child = fork();
  if (child == 0) {
    try {
      (void)store->fetch(held, stream, stream, device);
    } catch (const Error& error) {
      _exit(error.code() == ErrorCode::store_failure ? 0 : 2);
    }
    _exit(1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  read(held, 1);
}

TEST_F(PinnedStoreTest, SaysWhichStepLeft) {
  std::atomic<std::int64_t> step = -1;
  std::vector<Allocation> blobs{kept(kBlob, 0, {}, {&step, 7})};
  EXPECT_EQ(step, -1);
  for (std::uint64_t i = 1; i < 6; ++i) {
    device.synchronize();
    blobs.push_back(kept(kBlob, i));
  }
  EXPECT_EQ(step, 7);
}

TEST_F(PinnedStoreTest, WithoutPinnedMemoryEverythingStaysAndIsSaidOnce) {
  device.pinned_limit = 0;
  for (int step = 0; step < 2; ++step) {
    std::vector<Allocation> blobs = slow_forward(60);
    EXPECT_EQ(store->stats().passed_over, static_cast<std::size_t>(step + 1) * 56 * kBlob);
    backward(blobs);
    EXPECT_EQ(store->take_notice(), step > 0 ? ""
                                             : "store: the fake host has no pinned memory; what finds no place in host "
                                               "memory stays on its device");
  }
}

TEST_F(PinnedBudgetTest, IsKeptByWaitingForCopies) {
  device.copy_microseconds = 200;
  for (int step = 0; step < 3; ++step) {
    std::vector<Allocation> blobs = forward_within_budget(20);
    device.synchronize();
    EXPECT_LE(device.device_bytes, kLimit);
    EXPECT_GE(device.device_bytes, kLimit - 2 * kBlob) << "what was put away last has stayed";
    backward(blobs);
    device.synchronize();
  }
  EXPECT_GT(store->stats().host_waits, 0U);
  EXPECT_EQ(store->stats().passed_over, 0U);
  EXPECT_LE(device.peak_device_bytes, 2 * kLimit) << "beside what is being read, and copies that just end";
}

TEST_F(PinnedBudgetTest, WhatDoesNotFitAtAllIsRefused) {
  EXPECT_FALSE(store->make_room(kLimit + 1));
  const HeldMemory::Part other = held->try_hold(kLimit);
  EXPECT_FALSE(store->make_room(kBlob)) << "nothing of it could leave";
}

TEST_F(PinnedBudgetTest, WhatIsReadNowIsReadEvenIfThereIsNoRoom) {
  std::vector<Allocation> blobs = forward_within_budget(8);
  HeldMemory::Part other = room(kLimit);
  ASSERT_TRUE(other) << "all of them have left";
  for (std::uint64_t i = 8; i-- > 0;) read(blobs[i], i);
  EXPECT_EQ(store->stats().waits, 8U) << "nothing is fetched ahead";
  other = {};
  backward(blobs);
}

TEST_F(PinnedBudgetTest, WithoutPinnedMemoryThereIsAnErrorWhenItIsNeeded) {
  device.pinned_limit = 0;
  std::vector<Allocation> blobs = forward_within_budget(3);
  test::expect_error(ErrorCode::store_failure, "store: no 1048576 bytes of pinned memory: there was none left before",
                     [&] { (void)room(kBlob); });
  EXPECT_EQ(store->take_notice(), "");
  backward(blobs);
}

TEST_F(PinnedBudgetTest, AStepThatFitsStays) {
  held->set_limit(most = 16 * kBlob);
  std::vector<Allocation> blobs = forward_within_budget(12);
  EXPECT_EQ(store->stats().copied_out, 0U);
  backward(blobs);
  held->set_limit(kLimit);
  blobs = forward_within_budget(3);
  backward(blobs);
}

TEST_F(PinnedBudgetTest, WhatComesBackMakesRoomForForward) {
  std::vector<Allocation> blobs = forward_within_budget(8);
  read(blobs[7], 7);  // others come ahead
  EXPECT_GT(held->now(), 0U);
  const HeldMemory::Part part = room(kLimit);
  EXPECT_TRUE(part);
}

}  // namespace
}  // namespace actzip::store
