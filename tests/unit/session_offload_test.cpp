// A session that offloads blobs from a device to the host: reports, budgets and levels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actzip/error.hpp"
#include "actzip/session.hpp"
#include "fake_device.hpp"
#include "operators_of_tests.hpp"

namespace actzip {
namespace {

constexpr std::int64_t kElems = std::int64_t{1} << 18;

class SessionOffloadTest : public testing::Test {
 protected:
  void TearDown() override {
    kept.clear();
    session.reset();
    device.synchronize();
    EXPECT_EQ(device.faults, 0);
    EXPECT_EQ(device.device_bytes, 0U);
    EXPECT_EQ(device.pinned_bytes, 0U);
  }

  void forward(std::uint64_t num_tensors) {
    session->begin_step();
    for (std::uint64_t i = 0; i < num_tensors; ++i) {
      Reservation reserved = reserve(i);
      // In place of kernels, which the device does not have: bytes that tell whose they are.
      if (reserved.wants_bytes()) device.write(stream, {reserved.bytes().data, reserved.bytes().size, nullptr}, i);
      kept.push_back(session->keep(std::move(reserved), Written::tensor));
    }
  }

  Reservation reserve(std::uint64_t i) {
    const auto owner = std::make_shared<int>();
    SavedTensor tensor;
    tensor.view = {owner.get(), DType::f32, Shape::contiguous({kElems}), Device::cuda(0)};
    tensor.identity = {reinterpret_cast<std::uintptr_t>(owner.get()), owner};
    const SiteId site = session->site(test::site_key("layers." + std::to_string(i), "gelu", "self"));
    return session->reserve(site, tensor, stream, device);
  }

  void backward() {
    for (; !kept.empty(); kept.pop_back()) {
      const Encoding encoding = encoding_of(kept.back(), stream, device);
      device.read(stream, encoding.owner, kept.size() - 1);
    }
  }

  [[nodiscard]] std::vector<bool> offloaded() const {
    std::vector<bool> found;
    for (const SiteReport& site : session->report().sites) found.push_back(site.bytes_offloaded > 0);
    return found;
  }

  test::FakeDevice device;
  Stream stream = device.new_stream();
  std::unique_ptr<Session> session;
  std::vector<Kept> kept;
};

TEST_F(SessionOffloadTest, AStepWithinTheWindowStays) {
  session = std::make_unique<Session>(SessionOptions{.offload = "host"});
  for (int step = 0; step < 3; ++step) {
    forward(8);
    backward();
    const Report report = session->report();
    EXPECT_EQ(report.bytes_offloaded, 0U);
    EXPECT_EQ(report.offload->fetches, 8U * static_cast<unsigned>(step + 1));
  }
}

TEST_F(SessionOffloadTest, ABudgetIsKeptFromTheFirstStepOnAndTheLastStay) {
  session = std::make_unique<Session>(SessionOptions{.budget = "512KiB", .offload = "host"});
  for (int step = 0; step < 4; ++step) {
    forward(20);
    const Report report = session->report();
    EXPECT_GT(report.bytes_after, std::size_t{1} << 20U);
    EXPECT_GT(report.bytes_offloaded, report.bytes_after - (std::size_t{600} << 10U));
    const std::vector<bool> left = offloaded();
    EXPECT_TRUE(left.front());
    EXPECT_FALSE(left.back()) << "what backward needs first is there";
    EXPECT_TRUE(std::is_sorted(left.rbegin(), left.rend())) << "the first have left";
    backward();
    EXPECT_LE(session->report().budget->most_held, std::size_t{512} << 10U);
  }
  forward(40);  // a step that has grown
  backward();
  EXPECT_LE(session->report().budget->most_held, std::size_t{512} << 10U);
}

TEST_F(SessionOffloadTest, RoomThatNobodyUsesIsGivenBack) {
  session = std::make_unique<Session>(SessionOptions{.budget = "512KiB", .offload = "host"});
  session->begin_step();
  for (std::uint64_t i = 0; i < 20; ++i) (void)reserve(i);
  EXPECT_EQ(device.device_bytes, 0U);
  EXPECT_EQ(session->report().offload->copied_out, 0U);
  EXPECT_LE(session->report().budget->most_held, std::size_t{512} << 10U);
  forward(20);
  backward();
}

TEST_F(SessionOffloadTest, WhatPassesTheBudgetByItselfIsNamed) {
  session = std::make_unique<Session>(SessionOptions{.budget = "20KiB", .offload = "host"});
  forward(2);
  try {
    backward();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::budget_too_small);
    EXPECT_NE(std::string(error.what()).find("'layers.0: gelu.self'"), std::string::npos) << error.what();
  }
}

TEST_F(SessionOffloadTest, WithoutPinnedMemoryABudgetSaysSo) {
  device.pinned_limit = 0;
  session = std::make_unique<Session>(SessionOptions{.budget = "256KiB", .offload = "host"});
  try {
    forward(20);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::store_failure);
    EXPECT_NE(std::string(error.what()).find("pinned memory"), std::string::npos) << error.what();
  }
}

TEST_F(SessionOffloadTest, LevelsWithAHostPartRunAsTheyAreCalled) {
  session =
      std::make_unique<Session>(SessionOptions{.preset = "gact:L4bit-swap", .budget = "512KiB"});
  forward(20);
  EXPECT_GT(session->report().bytes_offloaded, 0U);
  EXPECT_EQ(session->report().runs_as, "");
  backward();
}

TEST_F(SessionOffloadTest, TheSessionMayGoBeforeBackward) {
  session = std::make_unique<Session>(SessionOptions{.budget = "512KiB", .offload = "host"});
  forward(20);
  session.reset();
  backward();
}

TEST_F(SessionOffloadTest, ACapturedStepStays) {
  session = std::make_unique<Session>(SessionOptions{.offload = "host"});
  device.is_capturing = true;
  forward(4);
  EXPECT_EQ(session->report().offload->fetches, 0U);
  backward();
  EXPECT_EQ(session->report().offload->fetches, 0U);
  device.is_capturing = false;
}

}  // namespace
}  // namespace actzip
