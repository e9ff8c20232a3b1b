// Decisions for callers that keep tensors themselves instead of giving them to the session, and their notes for its
// report.
#include <gtest/gtest.h>

#include <array>

#include "actzip/registry.hpp"
#include "actzip/session.hpp"

namespace actzip {
namespace {

SavedTensor floats(std::int64_t elems) {
  SavedTensor tensor;
  tensor.view.dtype = DType::f32;
  tensor.view.shape = Shape::contiguous({elems});
  tensor.bytes = static_cast<std::size_t>(elems) * sizeof(float);
  return tensor;
}

class Elsewhere : public ::testing::Test {
 protected:
  SavedFor saver(std::string_view op, Use use) { return {session_.site({"layer", op, "input", 0, use})}; }
  Decision decide(std::initializer_list<SavedFor> savers, std::int64_t elems = 4096) {
    return session_.decide(floats(elems), {savers.begin(), savers.size()});
  }

  Session session_;
};

TEST_F(Elsewhere, OneSaverGetsWhatKeepWouldDo) {
  const SavedFor linear = saver("linear", Use::linear_input);
  const Decision decision = decide({linear});
  EXPECT_EQ(decision.keep, Keep::encoded);
  EXPECT_EQ(to_string(decision.spec), "rotated:3");
  EXPECT_EQ(decision.site, linear.site);
  EXPECT_EQ(decision.cause, Cause::none);
}

TEST_F(Elsewhere, TheMostDemandingSaverSaysHow) {
  const SavedFor convolution = saver("convolution", Use::convolution_input);
  const SavedFor query = saver("attention", Use::attention_query);
  for (const auto& savers : {std::array{convolution, query}, std::array{query, convolution}}) {
    const Decision decision = session_.decide(floats(4096), savers);
    EXPECT_EQ(to_string(decision.spec), "rotated:4");
    EXPECT_EQ(decision.site, query.site);
  }
}

TEST_F(Elsewhere, ValuesBehindAReluCarryItsMask) {
  const SavedFor relu = saver("relu", Use::sign);
  const SavedFor convolution = saver("convolution", Use::convolution_input);
  EXPECT_EQ(to_string(decide({relu}).spec), "mask");
  EXPECT_EQ(to_string(decide({relu, convolution}).spec), "rotated:2:mask");
  const Decision decision = decide({convolution, relu});
  EXPECT_EQ(to_string(decision.spec), "rotated:2:mask");
  EXPECT_EQ(decision.site, convolution.site);
}

TEST_F(Elsewhere, WhatNoCodecGivesToAllIsKeptAsItIs) {
  const Decision decision = decide({saver("relu", Use::sign), saver("tanh", Use::bounded_result)});
  EXPECT_EQ(decision.keep, Keep::as_is);
  EXPECT_EQ(decision.reason, "its readers ask for different things");
  EXPECT_EQ(decide({saver("linear", Use::linear_input), saver("other", Use::unknown)}).keep, Keep::as_is);
}

TEST_F(Elsewhere, SmallTensorsStay) {
  const Decision decision = decide({saver("linear", Use::linear_input)}, 64);
  EXPECT_EQ(decision.keep, Keep::as_is);
  EXPECT_EQ(decision.cause, Cause::small);
}

TEST_F(Elsewhere, DecidingLeavesNoTrace) {
  session_.begin_step();
  decide({saver("linear", Use::linear_input)});
  EXPECT_TRUE(session_.report().sites.empty());
  EXPECT_EQ(session_.saves(), 0);
}

TEST_F(Elsewhere, NotesMakeTheReport) {
  session_.begin_step();
  const SiteId site = saver("linear", Use::linear_input).site;
  session_.note(
      site, floats(4096),
      {.kind = SiteKind::encoded, .spec = parse_spec("rotated:3"), .bytes = 1600, .reason = "enters linearly"});
  const Report report = session_.report();
  ASSERT_EQ(report.sites.size(), 1U);
  EXPECT_EQ(report.sites[0].codec, "rotated:3");
  EXPECT_EQ(report.bytes_before, 4096 * sizeof(float));
  EXPECT_EQ(report.bytes_after, 1600U);
  session_.begin_step();
  EXPECT_TRUE(session_.report().sites.empty());
}

TEST_F(Elsewhere, TheTimelineIsOfWhatASiteKeptLast) {
  session_.begin_step();
  const SiteId site = saver("linear", Use::linear_input).site;
  session_.note(
      site, floats(4096),
      {.kind = SiteKind::encoded, .spec = parse_spec("rotated:3"), .bytes = 1600, .reason = "enters linearly"});
  const double first = session_.note_made(site);
  const double second = session_.note_made(site);
  ASSERT_LT(first, second);
  session_.note_released(site, first);
  EXPECT_FALSE(session_.report().sites.at(0).freed_at);
  session_.note_released(site, second);
  const Report report = session_.report();
  EXPECT_TRUE(report.sites.at(0).freed_at);
  session_.note_released(site, first);
  EXPECT_EQ(session_.report().sites.at(0).freed_at, report.sites.at(0).freed_at);
}

}  // namespace
}  // namespace actzip
