#include "session/sample_bits.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "actzip/registry.hpp"
#include "actzip/session.hpp"
#include "operators_of_tests.hpp"
#include "plain_memory.hpp"

namespace actzip::session {
namespace {

SavedTensor shaped(const Shape& shape, std::int64_t samples = 0) {
  SavedTensor tensor;
  tensor.view = {nullptr, DType::f32, shape};
  tensor.samples.count = samples;
  return tensor;
}

Segments cut(const CodecSpec& spec, const Shape& shape, std::int64_t samples = 0, int least = 1) {
  return sample_segments(spec, shaped(shape, samples), Bits(least));
}

TEST(SampleSegments, AreTheRowsOfTheOutermostDimension) {
  const Segments eight{8, 16};
  EXPECT_EQ(cut(Rotated{}, Shape::contiguous({8, 4096})), eight);
  EXPECT_EQ(cut(Rotated{}, {4, {8, 16, 16, 16}, {4096, 1, 256, 16}}), eight) << "channels last";
  EXPECT_EQ(cut(Rotated{}, {2, {8, 4096}, {1, 8}}), Segments{}) << "transposed: samples lie between each other";
  EXPECT_EQ(cut(Rotated{}, {2, {8, 4096}, {5000, 1}}), Segments{}) << "gaps";
  EXPECT_EQ(cut(Rotated{}, {2, {8, 4096}, {0, 1}}), Segments{}) << "one sample, eight times";
  EXPECT_EQ(cut(Rotated{}, Shape::contiguous({1, 4096})), Segments{});
  EXPECT_EQ(cut(Rotated{}, Shape::contiguous({4096})), Segments{});
}

TEST(SampleSegments, AreLongEnoughAndCostLittle) {
  EXPECT_EQ(cut(Rotated{}, Shape::contiguous({8, 1024})), (Segments{8, 16}));
  EXPECT_EQ(cut(Rotated{}, Shape::contiguous({8, 512})), Segments{});
  EXPECT_EQ(cut(Rotated{}, Shape::contiguous({8, 1030})), Segments{}) << "a fifth group for 6 elements";
  EXPECT_EQ(cut(Affine{.bits = Bits(4)}, Shape::contiguous({8, 4100})), (Segments{8, 32})) << "affine pads nothing";
  EXPECT_EQ(cut(Rotated{.mask_plane = true}, Shape::contiguous({8, 4096 - 16})), Segments{}) << "half a word of mask";
  EXPECT_EQ(cut(Rotated{.mask_plane = true}, Shape::contiguous({8, 4096 - 32})), (Segments{8, 16}));
  EXPECT_EQ(cut(Rotated{}, Shape::contiguous({5000, 1024})), Segments{}) << "more than a plan takes";
}

TEST(SampleSegments, AreTheSamplesOfTheBatchIfTheyAreKnown) {
  EXPECT_EQ(cut(Rotated{}, Shape::contiguous({5000, 1024}), 50), (Segments{50, 100})) << "tokens of 50 texts";
  EXPECT_EQ(cut(Rotated{}, Shape::contiguous({64, 1024}), 50), (Segments{64, 128})) << "something else";
}

TEST(SampleSegments, NeedAChoice) {
  const Shape shape = Shape::contiguous({8, 4096});
  EXPECT_EQ(cut(Rotated{.bits = Bits(1)}, shape), Segments{});
  EXPECT_EQ(cut(Rotated{.bits = Bits(4)}, shape), Segments{});
  EXPECT_EQ(cut(Rotated{.bits = Bits(2)}, shape, 0, 2), Segments{});
  EXPECT_EQ(cut(Affine{.bits = Bits(8)}, shape), Segments{});
  EXPECT_EQ(cut(Mask{}, shape), Segments{});
  EXPECT_EQ(cut(Copy{}, shape), Segments{});
}

/// A convolution's input, and a ReLU's result that another one reads.
class SampleSession : public ::testing::Test {
 protected:
  static constexpr std::int64_t kSamples = 16;
  static constexpr std::int64_t kLength = 4096;

  SampleSession() : values_(kSamples * kLength), guard_(std::make_shared<int>()) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const float scale = i / kLength % 4 == 0 ? 10.0F : 0.1F;
      values_[i] = scale * std::sin(0.37F * static_cast<float>(i) + static_cast<float>(i % 7));
    }
  }

  Kept keep(const char* module, const char* op, const char* slot) {
    SavedTensor tensor;
    tensor.view = {values_.data(), DType::f32, Shape::contiguous({kSamples, kLength})};
    tensor.identity = {reinterpret_cast<std::uintptr_t>(guard_.get()), guard_};
    tensor.samples = samples_;
    return session_->keep(session_->site(test::site_key(module, op, slot)), tensor, Stream(), memory_);
  }

  /// Squared error of each sample, relative to all.
  std::vector<double> errors(const Kept& kept) {
    const Allocation restored = restore(kept, Stream(), memory_);
    const auto* now = reinterpret_cast<const float*>(restored.data);
    std::vector<double> result(kSamples);
    double energy = 0.0;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      energy += static_cast<double>(values_[i]) * values_[i];
      result[i / kLength] += std::pow(static_cast<double>(now[i]) - values_[i], 2);
    }
    for (double& error : result) error /= energy;
    return result;
  }

  static double sum(const std::vector<double>& numbers) {
    double total = 0.0;
    for (const double number : numbers) total += number;
    return total;
  }

  std::optional<Session> session_;
  std::vector<float> values_;
  std::vector<float> factors_ = std::vector<float>(kSamples, 1.0F);
  BatchSamples samples_{.count = kSamples, .factors = factors_.data()};
  test::PlainMemory memory_;

 private:
  std::shared_ptr<int> guard_;
};

TEST_F(SampleSession, GivesBitsToTheSamplesThatMatter) {
  session_.emplace(SessionOptions{.adapt = "sample"});
  session_->begin_step();
  const Kept kept = keep("a", "convolution", "input");
  EXPECT_TRUE(kept.has_segment_bits);
  const SiteReport site = session_->report().sites[0];
  EXPECT_EQ(site.codec, "rotated:2");
  ASSERT_TRUE(site.sample_bits);
  EXPECT_EQ(site.sample_bits->samples, kSamples);
  EXPECT_EQ(site.sample_bits->fewest, 1);
  EXPECT_EQ(site.sample_bits->most, 4);
  EXPECT_EQ(site.sample_bits->mean, 2.0);
  const double error = sum(errors(kept));
  EXPECT_NEAR(error, site.sample_bits->error, 0.3 * error);
  EXPECT_LT(error, 0.2 * expected_error(Rotated{}));
  EXPECT_NE(session_->report().to_text().find("16 samples with 1 to 4 bits, 2.00 on average"), std::string::npos);
  EXPECT_NE(session_->report().to_json().find(R"("sample_bits": {"samples": 16, "fewest": 1)"), std::string::npos);
}

TEST_F(SampleSession, TakesFactorsIntoAccount) {
  factors_[1] = 1e6F;
  session_.emplace(SessionOptions{.adapt = "sample"});
  session_->begin_step();
  const auto with = errors(keep("a", "convolution", "input"));
  factors_[1] = 1.0F;
  session_.emplace(SessionOptions{.adapt = "sample"});
  session_->begin_step();
  const auto without = errors(keep("a", "convolution", "input"));
  EXPECT_LT(with[1], 0.1 * without[1]);
}

TEST_F(SampleSession, SharesWithTheMaskOfARelu) {
  for (float& value : values_) value = std::max(value, 0.0F);
  session_.emplace(SessionOptions{.adapt = "sample"});
  Kept mask;
  Kept kept;
  for (int step = 0; step < 2; ++step) {
    mask = kept = {};
    session_->begin_step();
    mask = keep("a", "relu", "result");
    kept = keep("b", "convolution", "input");
  }
  EXPECT_TRUE(mask.as_mask);
  EXPECT_EQ(mask.blob, kept.blob);
  EXPECT_TRUE(session_->report().sites[0].sample_bits);
  EXPECT_LT(sum(errors(kept)), 0.2 * expected_error(Rotated{}));
  const Allocation restored = restore(mask, Stream(), memory_);
  const auto* now = reinterpret_cast<const float*>(restored.data);
  for (std::size_t i = 0; i < values_.size(); ++i) ASSERT_EQ(now[i] > 0.0F, values_[i] > 0.0F) << i;
}

TEST_F(SampleSession, LeavesAloneWhatARuleNames) {
  session_.emplace(SessionOptions{.rules = {{"convolution.*", "rotated:2"}}, .adapt = "sample"});
  session_->begin_step();
  EXPECT_FALSE(keep("a", "convolution", "input").has_segment_bits);
}

TEST_F(SampleSession, PlansSitesByWhatTheirSamplesLeave) {
  session_.emplace(SessionOptions{.bits = 2, .adapt = "sample+layer"});
  session_->begin_step();
  session_->begin_step();
  session_->note_observed();
  keep("a", "convolution", "input");
  const SiteId site = session_->site(test::site_key("a", "convolution", "input"));
  session_->learn({.sites = {{site, 1.0}}});
  const double predicted = *session_->report().plan->predicted_variance;
  const SiteReport row = session_->report().sites[0];
  EXPECT_NEAR(predicted, row.sample_bits->error, 1e-6);
  EXPECT_NEAR(*row.variance, predicted, 1e-6);
  EXPECT_LT(predicted, 0.2 * expected_error(Rotated{}));
}

}  // namespace
}  // namespace actzip::session
