// A session with memory and tensors like an adapter's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actzip/session.hpp"
#include "operators_of_tests.hpp"
#include "plain_memory.hpp"

namespace actzip::test {

/// Memory that counts allocations.
class FakeMemory : public PlainMemory {
 public:
  Allocation allocate(std::size_t bytes, const Stream& stream) override {
    ++allocations;
    return PlainMemory::allocate(bytes, stream);
  }
  Allocation allocate_visible(std::size_t bytes, const Stream& stream) override {
    last_flag = allocate(bytes, stream);
    return last_flag;
  }

  std::shared_ptr<void> point_in(const Stream& /*stream*/) override { return is_device ? last_flag.owner : nullptr; }
  /// Acts like a device that reports a wrong index only when somebody waits for it.
  void wait_for(const std::shared_ptr<void>& /*point*/) override {
    if (finds_late) std::memset(last_flag.data, 1, 1);
  }

  int allocations = 0;
  Allocation last_flag;
  bool is_device = false;
  bool finds_late = false;
};

/// A tensor, described as an adapter would.
struct FakeTensor {
  explicit FakeTensor(std::int64_t elems = 4096, float shift = 0) : values(static_cast<std::size_t>(elems)) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(0.37F * static_cast<float>(i)) + shift;
  }
  void relu() {
    for (float& x : values) x = std::max(x, 0.0F);
  }
  [[nodiscard]] SavedTensor saved() const {
    SavedTensor tensor;
    tensor.view = {values.data(), DType::f32, Shape::contiguous({static_cast<std::int64_t>(values.size())})};
    tensor.identity = {reinterpret_cast<std::uintptr_t>(guard.get()), guard};
    tensor.version = version;
    return tensor;
  }

  std::vector<float> values;
  std::shared_ptr<int> guard = std::make_shared<int>();
  std::uint32_t version = 0;
};

class SessionTest : public testing::Test {
 protected:
  Kept keep(const char* op, const char* slot, const SavedTensor& tensor) {
    return session->keep(session->site(site_key("", op, slot)), tensor, Stream(), memory);
  }
  Reservation reserve(const char* op, const char* slot, const SavedTensor& tensor) {
    return session->reserve(session->site(site_key("", op, slot)), tensor, Stream(), memory);
  }
  std::vector<float> values(const Kept& kept) {
    const Allocation restored = restore(kept, Stream(), memory);
    std::vector<float> result(restored.size / sizeof(float));
    std::memcpy(result.data(), restored.data, restored.size);
    return result;
  }
  [[nodiscard]] std::vector<std::string> codecs() const {
    std::vector<std::string> result;
    for (const SiteReport& site : session->report().sites) result.push_back(site.codec);
    return result;
  }
  void restart(const SessionOptions& options) { session.emplace(options); }

  FakeMemory memory;
  std::optional<Session> session{std::in_place};
};

}  // namespace actzip::test
