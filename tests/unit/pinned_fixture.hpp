// A store in pinned memory on a simulated device, and the work of a program that uses it.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "fake_device.hpp"
#include "store/held_memory.hpp"
#include "store/store.hpp"

namespace actzip::test {

inline constexpr std::size_t kBlob = std::size_t{64} << 10U;
inline constexpr std::size_t kSmallWindow = 4 * kBlob;

class PinnedStoreTest : public testing::Test {
 protected:
  void TearDown() override {
    store.reset();
    device.synchronize();
    EXPECT_EQ(device.faults, 0);
    EXPECT_EQ(device.device_bytes, 0U);
    EXPECT_EQ(device.pinned_bytes, 0U) << "pinned memory is given back";
  }

  Allocation kept(std::size_t bytes, std::uint64_t seed, store::HeldMemory::Part part = {},
                  const store::LeaveNote& note = {}) {
    const Allocation reserved = store->reserve(bytes, stream, device, std::move(part));
    device.write(stream, reserved, seed);
    return store->put_away(reserved, stream, device, note);
  }

  std::vector<Allocation> forward(std::uint64_t num_blobs) {
    std::vector<Allocation> blobs;
    for (std::uint64_t i = 0; i < num_blobs; ++i) blobs.push_back(kept(kBlob, i));
    return blobs;
  }

  /// The same, but no copy falls behind.
  std::vector<Allocation> slow_forward(std::uint64_t num_blobs) {
    std::vector<Allocation> blobs;
    for (std::uint64_t i = 0; i < num_blobs; ++i) {
      blobs.push_back(kept(kBlob, i));
      device.synchronize();
    }
    return blobs;
  }

  void read(const Allocation& held, std::uint64_t seed, const Stream& reader) {
    const Allocation bytes = store->fetch(held, stream, reader, device);
    device.read(reader, bytes, seed);
  }
  void read(const Allocation& held, std::uint64_t seed) { read(held, seed, stream); }

  void backward(std::vector<Allocation>& blobs) {
    for (std::uint64_t i = blobs.size(); i-- > 0;) {
      read(blobs[i], i);
      blobs.pop_back();
    }
  }

  FakeDevice device;
  Stream stream = device.new_stream();
  std::shared_ptr<store::Store> store = store::pinned_store({.window_bytes = kSmallWindow, .block_bytes = 16 * kBlob});
};

class PinnedBudgetTest : public PinnedStoreTest {
 protected:
  PinnedBudgetTest() {
    held->set_limit(kLimit);
    store = store::pinned_store({.window_bytes = kSmallWindow, .block_bytes = 16 * kBlob, .budget = held});
  }
  void TearDown() override {
    PinnedStoreTest::TearDown();
    EXPECT_EQ(held->now(), 0U);
    EXPECT_LE(held->peak(), most);
  }

  store::HeldMemory::Part room(std::size_t bytes) {
    store::HeldMemory::Part part = held->try_hold(bytes);
    return part ? std::move(part) : store->make_room(bytes);
  }

  std::vector<Allocation> forward_within_budget(std::uint64_t num_blobs) {
    std::vector<Allocation> blobs;
    for (std::uint64_t i = 0; i < num_blobs; ++i) {
      store::HeldMemory::Part part = room(kBlob);
      EXPECT_TRUE(part);
      blobs.push_back(kept(kBlob, i, std::move(part)));
    }
    return blobs;
  }

  static constexpr std::size_t kLimit = 3 * kBlob;
  std::size_t most = kLimit;
  std::shared_ptr<store::HeldMemory> held = std::make_shared<store::HeldMemory>();
};

}  // namespace actzip::test
