// Tensors that are computed in backward from another site's tensor instead of being kept.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "actzip/session.hpp"
#include "operators_of_tests.hpp"
#include "plain_memory.hpp"

namespace actzip {
namespace {

struct Tensor {
  explicit Tensor(float lowest) : values(8192) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = std::max(lowest, std::sin(0.37F * static_cast<float>(i)));
  }
  [[nodiscard]] SavedTensor saved() const {
    SavedTensor tensor;
    tensor.view = {values.data(), DType::f32, Shape::contiguous({static_cast<std::int64_t>(values.size())})};
    tensor.identity = {reinterpret_cast<std::uintptr_t>(guard.get()), guard};
    return tensor;
  }
  std::vector<float> values;
  std::shared_ptr<int> guard = std::make_shared<int>();
};

class Derive : public testing::Test {
 protected:
  Kept keep(Session& session, const char* op, const char* slot, const Tensor& tensor, const Kept* source = nullptr) {
    return session.keep(session.site(test::site_key("", op, slot)), tensor.saved(), Stream(), memory_, source);
  }
  static std::string codec(const Session& session, std::size_t site) { return session.report().sites.at(site).codec; }

  test::PlainMemory memory_;
  Tensor x_{-2.0F};
  Tensor y_{-2.0F};
  Tensor positive_{0.0F};
};

TEST_F(Derive, NothingIsKeptForIt) {
  Session session;
  session.begin_step();
  const Kept norm = keep(session, "batch_norm", "input", x_);
  const std::size_t held = session.live_bytes();
  const Kept kept = keep(session, "convolution", "input", y_, &norm);
  EXPECT_TRUE(kept.derived);
  EXPECT_EQ(kept.blob, norm.blob);
  EXPECT_EQ(session.live_bytes(), held);
  const Report report = session.report();
  EXPECT_EQ(report.sites[1].kind, SiteKind::derived);
  EXPECT_EQ(report.sites[1].kept_by, "batch_norm.input");
  EXPECT_NE(report.to_text().find("kept by batch_norm.input"), std::string::npos);
  EXPECT_EQ(report.sites[1].bytes_after, 0U);
}

TEST_F(Derive, TorchWouldKeepTheMemoryOfSeveralOnce) {
  Session session;
  session.begin_step();
  const Kept norm = keep(session, "batch_norm", "input", x_);
  const Kept first = keep(session, "convolution", "input", y_, &norm);
  const Kept second =
      session.keep(session.site(test::site_key("other", "convolution", "input")), y_.saved(), Stream(), memory_, &norm);
  const Report report = session.report();
  EXPECT_EQ(report.sites[1].bytes_before, 4 * y_.values.size());
  EXPECT_EQ(report.sites[2].bytes_before, 0U);
  EXPECT_TRUE(second.derived);
}

TEST_F(Derive, TheSourceLearnsToKeepMore) {
  Session session;
  session.begin_step();
  {
    const Kept norm = keep(session, "layer_norm", "input", x_);
    const Kept kept = keep(session, "linear", "input", y_, &norm);  // asks for 3 bits, where a norm asks for 2
    EXPECT_FALSE(kept.derived);
    EXPECT_EQ(codec(session, 0), "rotated:2");
    EXPECT_EQ(codec(session, 1), "rotated:3");
  }
  session.begin_step();
  const Kept norm = keep(session, "layer_norm", "input", x_);
  EXPECT_TRUE(keep(session, "linear", "input", y_, &norm).derived);
  EXPECT_EQ(codec(session, 0), "rotated:3");
}

TEST_F(Derive, AfterAReluTheSourceKeepsABitMoreAndTheReluItsMask) {
  Session session;
  for (const bool is_learned : {false, true}) {
    session.begin_step();
    const Kept norm = keep(session, "batch_norm", "input", x_);
    const Kept relu = keep(session, "relu", "result", positive_);
    const Kept kept = keep(session, "convolution", "input", positive_, &norm);
    EXPECT_EQ(kept.derived, is_learned);
    EXPECT_EQ(codec(session, 0), is_learned ? "rotated:3" : "rotated:2");
    EXPECT_EQ(codec(session, 1), "mask");
  }
}

TEST_F(Derive, ValuesThatAreKeptAnywayAreShared) {
  Session session;
  session.begin_step();
  const Kept norm = keep(session, "batch_norm", "input", x_);
  const Kept other = keep(session, "convolution", "input", y_);
  const Kept kept =
      session.keep(session.site(test::site_key("other", "convolution", "input")), y_.saved(), Stream(), memory_, &norm);
  EXPECT_FALSE(kept.derived);
  EXPECT_EQ(kept.blob, other.blob);
}

TEST_F(Derive, WhatIsToBeExactIsKept) {
  Session session({.rules = {{"convolution.*", "as is"}}});
  for (int step = 0; step < 2; ++step) {
    session.begin_step();
    const Kept norm = keep(session, "batch_norm", "input", x_);
    const Kept kept = keep(session, "convolution", "input", y_, &norm);
    EXPECT_FALSE(kept.derived);
    EXPECT_EQ(codec(session, 0), "rotated:2") << "a norm learns nothing from those who cannot derive";
  }
}

TEST_F(Derive, ADrySessionReportsItAndKeepsTheTensor) {
  Session session({.dry = true});
  session.begin_step();
  const Kept norm = keep(session, "batch_norm", "input", x_);
  const Kept kept = keep(session, "convolution", "input", y_, &norm);
  EXPECT_EQ(kept.how, Keep::as_is);
  EXPECT_FALSE(kept.derived);
  EXPECT_EQ(codec(session, 1), "derived");
}

}  // namespace
}  // namespace actzip
