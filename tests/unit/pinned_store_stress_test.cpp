// Threads that make random training steps with a store in pinned memory, on devices that are slow or refuse requests.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "actzip/error.hpp"
#include "fake_device.hpp"
#include "stamped.hpp"
#include "store/store.hpp"

namespace actzip::store {
namespace {

using test::FakeDevice;

constexpr std::size_t kStressWindow = std::size_t{128} << 10U;
constexpr std::size_t kStressBlock = 4 * kStressWindow;

/// Steps of a thread with streams of its own: forward, sometimes an exception, sometimes no backward, sometimes two.
/// What the device refuses is tried again.
void train_on_devices(Store& store, FakeDevice& device, std::uint32_t seed, std::atomic<std::int64_t>& steps) {
  std::mt19937 random(seed);
  const int index = static_cast<int>(seed % 2);
  const std::vector<Stream> streams{device.new_stream(index), device.new_stream(index)};
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(test::stress_seconds());
  struct Held {
    Allocation bytes;
    std::uint64_t seed = 0;
    Stream writer;
  };
  const auto keep = [&](Held& blob) {
    blob.seed = (std::uint64_t{seed} << 40U) + random();
    blob.writer = streams[random() % 8 == 0 ? 1 : 0];
    const Allocation reserved = store.reserve(random() % (std::size_t{1} << (random() % 18U)), blob.writer, device);
    device.write(blob.writer, reserved, blob.seed);
    blob.bytes = store.put_away(reserved, blob.writer, device);
  };
  const auto read = [&](const Held& blob) {
    const Stream& reader = streams[random() % 8 == 0 ? 1 : 0];
    const Allocation bytes = store.fetch(blob.bytes, blob.writer, reader, device);
    device.read(reader, bytes, blob.seed);
  };
  const auto until_it_works = [&](const auto& work) {
    for (int tries = 0; tries < 1000; ++tries) {
      try {
        return work();
      } catch (const Error&) {
      }
    }
    ADD_FAILURE() << "it is refused for ever";
  };
  for (int step = 0; step < 15 || std::chrono::steady_clock::now() < until; ++step, ++steps) {
    std::vector<Held> blobs(random() % 40);
    for (Held& blob : blobs) {
      until_it_works([&] { keep(blob); });
      if (random() % 20 == 0) blob = {};
    }
    if (random() % 10 == 0) continue;
    if (random() % 3 == 0) std::shuffle(blobs.begin(), blobs.end(), random);
    for (auto passes = 1 + random() % 2; passes-- > 0;) {
      for (auto blob = blobs.rbegin(); blob != blobs.rend(); ++blob) {
        if (blob->bytes.owner == nullptr) continue;
        until_it_works([&] { read(*blob); });
        if (passes == 0) blob->bytes = {};
      }
    }
    if (random() % 50 == 0) store.trim();
  }
}

void stress_pinned_store(FakeDevice& device, const PinnedOptions& options) {
  auto store = pinned_store(options);
  std::atomic<std::int64_t> steps = 0;
  std::vector<std::thread> threads;
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] { train_on_devices(*store, device, seed, steps); });
  }
  for (std::thread& thread : threads) thread.join();
  const StoreStats stats = store->stats();
  EXPECT_EQ(stats.away_bytes + stats.ahead_bytes, 0U);
  EXPECT_GT(stats.copied_out, 0U);
  EXPECT_GT(stats.copied_in, 0U);
  if (test::stress_seconds() > 0) {
    std::printf("%lld steps, %llu fetches, %llu waited, %llu bytes out, %llu back, %llu stayed\n",
                static_cast<long long>(steps.load()), static_cast<unsigned long long>(stats.fetches),
                static_cast<unsigned long long>(stats.waits), static_cast<unsigned long long>(stats.copied_out),
                static_cast<unsigned long long>(stats.copied_in), static_cast<unsigned long long>(stats.passed_over));
  }
  device.refused_points.set(0);  // of copies whose end cannot be known, the memory is never freed
  store.reset();
  device.synchronize();
  EXPECT_EQ(device.faults, 0);
  EXPECT_EQ(device.device_bytes, 0U);
  EXPECT_EQ(device.pinned_bytes, 0U);
}

TEST(PinnedStoreStress, ThreadsAndDevicesGetTheirOwnBytes) {
  FakeDevice device(2);
  stress_pinned_store(device, {.window_bytes = kStressWindow, .block_bytes = kStressBlock});
}

TEST(PinnedStoreStress, WithASlowLink) {
  FakeDevice device(2);
  device.copy_microseconds = 300;
  stress_pinned_store(device, {.window_bytes = kStressWindow, .block_bytes = kStressBlock});
}

TEST(PinnedStoreStress, WhatIsRefusedIsToldOrDoneAnotherWay) {
  FakeDevice device(2);
  device.refused_copies.set(20);
  device.refused_points.set(50);
  device.refused_allocations.set(30);
  device.refused_keeps.set(30);
  stress_pinned_store(device, {.window_bytes = kStressWindow, .block_bytes = kStressBlock});
}

TEST(PinnedStoreStress, WithABudgetThatCountsEverything) {
  FakeDevice device(2);
  device.refused_copies.set(20);
  stress_pinned_store(
      device, {.window_bytes = kStressWindow, .block_bytes = kStressBlock, .budget = std::make_shared<HeldMemory>()});
}

}  // namespace
}  // namespace actzip::store
