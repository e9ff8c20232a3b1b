// What a store in pinned memory does when its device refuses something, is full, or is captured.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "actzip/error.hpp"
#include "pinned_fixture.hpp"
#include "store/store.hpp"

namespace actzip::store {
namespace {

using test::kBlob;
using test::kSmallWindow;

class PinnedFaultsTest : public test::PinnedStoreTest {};

class PinnedBudgetFaultsTest : public test::PinnedBudgetTest {};

TEST_F(PinnedFaultsTest, MemoryThatCannotBeKeptForItsCopyIsFreedAfterIt) {
  std::vector<Allocation> blobs = slow_forward(20);
  device.copy_microseconds = 3000;
  read(blobs[15], 15);
  EXPECT_GT(store->stats().ahead_bytes, 0U) << "others are on their way";
  device.refused_keeps.set(1);
  blobs.clear();
}

TEST_F(PinnedFaultsTest, MemoryOfACopyThatGivesNoPointIsFreedAfterIt) {
  std::vector<Allocation> blobs = slow_forward(20);
  device.copy_microseconds = 3000;
  device.refused_keeps.set(1);
  device.refused_points.only(4);  // the point at which the first copy has ended
  EXPECT_THROW(read(blobs[10], 10), Error);
  blobs.clear();
}

TEST_F(PinnedFaultsTest, TheEndOfTheLastCopyIsKnownWithoutAnotherPoint) {
  std::vector<Allocation> blobs = slow_forward(20);
  device.copy_microseconds = 3000;
  read(blobs[15], 15);
  blobs.clear();
  device.refused_points.set(1);
  store.reset();
  device.refused_points.set(0);
  device.synchronize();
  EXPECT_EQ(device.pinned_bytes, 0U);
}

TEST_F(PinnedBudgetFaultsTest, ACopyThatWasRefusedHidesNoOther) {
  device.copy_microseconds = 5000;
  device.refused_copies.set(1);
  std::vector<Allocation> blobs = forward_within_budget(3);
  device.refused_copies.set(0);
  HeldMemory::Part part = room(kBlob);
  EXPECT_TRUE(part);
  EXPECT_EQ(store->stats().copied_out, kBlob) << "no more than necessary";
  part = {};
  backward(blobs);
}

TEST_F(PinnedBudgetFaultsTest, WhatWasFetchedAheadMakesRoomIfNothingCanLeave) {
  store = pinned_store({.window_bytes = kSmallWindow, .block_bytes = kBlob, .budget = held});
  std::vector<Allocation> blobs = forward_within_budget(8);
  device.synchronize();
  store->trim();
  device.pinned_limit = device.pinned_bytes.load();
  read(blobs[7], 7);
  EXPECT_GT(store->stats().ahead_bytes, 0U);
  EXPECT_EQ(held->room(), 0U);
  HeldMemory::Part part = room(kBlob);
  EXPECT_TRUE(part);
  part = {};
  backward(blobs);
}

TEST(PinnedStoreDevices, OneWithoutPinnedMemoryLeavesItToTheOthers) {
  test::FakeDevice device(2);
  const std::vector<Stream> streams{device.new_stream(0), device.new_stream(1)};
  const auto held = std::make_shared<HeldMemory>();
  held->set_limit(3 * kBlob);
  auto store = pinned_store({.window_bytes = kSmallWindow, .block_bytes = kBlob, .budget = held});
  std::vector<std::pair<Allocation, Stream>> blobs;
  const auto keep = [&](const Stream& stream) {
    const Allocation reserved = store->reserve(kBlob, stream, device, held->try_hold(kBlob));
    device.write(stream, reserved, blobs.size());
    blobs.emplace_back(store->put_away(reserved, stream, device), stream);
  };
  keep(streams[1]);
  keep(streams[1]);
  device.pinned_limit = 0;
  keep(streams[0]);  // now the budget is used up, and this one cannot leave
  device.pinned_limit = SIZE_MAX;
  EXPECT_TRUE(store->make_room(kBlob));
  for (std::uint64_t i = 3; i-- > 0;) {
    const auto& [bytes, stream] = blobs[i];
    device.read(stream, store->fetch(bytes, stream, stream, device), i);
  }
  blobs.clear();
  store.reset();
  device.synchronize();
  EXPECT_EQ(device.faults, 0);
  EXPECT_EQ(device.device_bytes, 0U);
}

TEST_F(PinnedFaultsTest, WhatWasFetchedAheadMakesRoomOnAFullDevice) {
  std::vector<Allocation> blobs = slow_forward(20);
  read(blobs[15], 15);
  device.synchronize();
  EXPECT_GT(store->stats().ahead_bytes, 0U);
  device.device_limit = device.device_bytes.load();
  read(blobs[2], 2);
  backward(blobs);
}

TEST_F(PinnedFaultsTest, AFullDeviceIsAnErrorThatLosesNothing) {
  std::vector<Allocation> blobs = slow_forward(20);
  device.device_limit = 0;
  EXPECT_THROW(read(blobs[2], 2), Error);
  device.device_limit = SIZE_MAX;
  backward(blobs);
}

TEST_F(PinnedBudgetFaultsTest, ABufferBeyondTheBudgetDoesNotOutliveAFailure) {
  std::vector<Allocation> blobs = forward_within_budget(8);
  HeldMemory::Part other = room(kLimit);
  ASSERT_TRUE(other) << "all of them have left";
  device.refused_points.only(5);  // the reader's wait for the copy
  EXPECT_THROW(read(blobs[0], 0), Error);
  EXPECT_EQ(store->stats().device_bytes, 0U);
  other = {};
  backward(blobs);
}

TEST_F(PinnedBudgetFaultsTest, NothingLeavesWhileAGraphIsCaptured) {
  held->set_limit(most = 4 * kBlob);
  std::vector<Allocation> blobs = forward_within_budget(3);
  const HeldMemory::Part other = room(kBlob);
  device.is_capturing = true;
  EXPECT_THROW((void)room(kBlob), Error);
  EXPECT_EQ(store->stats().copied_out, 0U);
  EXPECT_EQ(device.pinned_blocks, 0);
  device.is_capturing = false;
  EXPECT_TRUE(room(kBlob));
  backward(blobs);
}

TEST_F(PinnedFaultsTest, AnAllocatorMayWaitForAThreadThatUsesTheStore) {
  std::atomic<int> calls = 0;
  std::atomic<int> blocked = 0;
  device.in_allocator = [&] {
    ++calls;
    if (blocked > 0) return;
    const auto other = std::async(std::launch::async, [&] { (void)store->stats(); });
    if (other.wait_for(std::chrono::seconds(2)) != std::future_status::ready) ++blocked;
  };
  std::vector<Allocation> blobs = slow_forward(20);
  const std::vector<Allocation> forgotten{blobs[8], blobs[7]};
  read(blobs[10], 10);
  backward(blobs);
  EXPECT_GT(calls, 50);
  EXPECT_EQ(blocked, 0);
  device.synchronize();
  device.in_allocator = nullptr;
}

}  // namespace
}  // namespace actzip::store
