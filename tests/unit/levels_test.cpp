#include "actzip/levels.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actzip/error.hpp"
#include "actzip/policy.hpp"
#include "expect_error.hpp"
#include "operators_of_tests.hpp"
#include "session_fixture.hpp"

namespace actzip {
namespace {

constexpr std::int64_t kSomeElems = 4096;

/// What the policy of a level says; plans come later.
std::string codec_at(const char* level, std::string_view op, std::string_view slot, std::optional<double> bits = {}) {
  const SessionOptions options = written_out({.preset = level, .bits = bits});
  const auto whole =
      options.bits && options.adapt.empty() ? std::optional(Bits(static_cast<int>(*options.bits))) : std::nullopt;
  const Policy policy(options.preset, whole, options.rules);
  const Choice choice =
      policy.choose(policy.row(test::site_key("", op, slot)), DType::f32, Shape::contiguous({kSomeElems}), {});
  if (choice.how == Keep::as_is) return "as is";
  return choice.how == Keep::encoded ? to_string(choice.spec) : "shape only";
}

TEST(Levels, AllOfBothAreThereAndEachRunsAsOneThatHasNoHostPart) {
  std::vector<std::string> names;
  for (const Level& level : levels()) {
    names.emplace_back(level.name);
    const Level* own = find_level(level.runs_as);
    ASSERT_NE(own, nullptr);
    EXPECT_EQ(own->runs_as, own->name);
    EXPECT_EQ(own->bits, level.bits) << level.name;
    EXPECT_EQ(own->adapt, level.adapt) << level.name;
    EXPECT_EQ(own->reach, level.reach) << level.name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"actnn:L0", "actnn:L1", "actnn:L2", "actnn:L2.5", "actnn:L3", "actnn:L3.1",
                                             "actnn:L4", "actnn:L5", "actnn:swap", "gact:L0", "gact:L1", "gact:L1.1",
                                             "gact:L1.2", "gact:L2", "gact:L2.1", "gact:L2.2", "gact:L3", "gact:swap",
                                             "gact:L4bit-swap"}));
}

TEST(Levels, ReachTellsThemApart) {
  struct Case {
    const char* level;
    const char* convolution;
    const char* linear;
    const char* norm;
    const char* gelu;
  };
  for (const Case& expected : {
           Case{"actnn:L0", "as is", "as is", "as is", "as is"},
           Case{"actnn:L1", "rotated:4", "rotated:4", "as is", "as is"},
           Case{"actnn:L2", "rotated:4", "rotated:4", "rotated:4", "rotated:4"},
           Case{"actnn:swap", "as is", "as is", "as is", "as is"},
           Case{"gact:L0", "as is", "as is", "as is", "as is"},
           Case{"gact:L1", "rotated:4", "rotated:4", "rotated:4", "rotated:4"},
           Case{"gact:L1.1", "affine:8:dithered", "affine:8:dithered", "affine:8:dithered", "affine:8:dithered"},
           Case{"gact:L1.2", "rotated:2", "rotated:3", "rotated:2", "rotated:3"},
           Case{"gact:L4bit-swap", "rotated:4", "rotated:4", "rotated:4", "rotated:4"},
       }) {
    EXPECT_EQ(codec_at(expected.level, "convolution", "input"), expected.convolution) << expected.level;
    EXPECT_EQ(codec_at(expected.level, "addmm", "mat1"), expected.linear) << expected.level;
    EXPECT_EQ(codec_at(expected.level, "batch_norm", "input"), expected.norm) << expected.level;
    EXPECT_EQ(codec_at(expected.level, "gelu", "self"), expected.gelu) << expected.level;
    EXPECT_EQ(codec_at(expected.level, "relu", "result"), "mask") << expected.level;
  }
}

TEST(Levels, GactCodesWhatNobodyKnows) {
  EXPECT_EQ(codec_at("gact:L1", "no_such_operator", "x"), "rotated:4");
  EXPECT_EQ(codec_at("gact:L1.1", "mylib::relu", "self"), "affine:8:dithered");
  EXPECT_EQ(codec_at("actnn:L2", "no_such_operator", "x"), "as is");
}

TEST(Levels, OptionsOfTheUserComeFirst) {
  EXPECT_EQ(codec_at("actnn:L2", "convolution", "input", 8), "affine:8:dithered");
  EXPECT_EQ(codec_at("actnn:L1", "convolution", "input", 2), "rotated:2");
  const SessionOptions options =
      written_out({.preset = "actnn:L3", .bits = 1.5, .rules = {{"gelu.*", "as is"}}, .adapt = "layer"});
  EXPECT_EQ(options.preset, "default");
  EXPECT_EQ(options.bits, 1.5);
  EXPECT_EQ(options.adapt, "layer");
  EXPECT_EQ(options.rules.size(), 1U);
  const SessionOptions layers = written_out({.preset = "actnn:L1", .rules = {{"addmm.*", "as is"}}});
  EXPECT_EQ(layers.rules.front().sites, "addmm.*");
  EXPECT_EQ(layers.rules.front().keep, "as is");
}

TEST(Levels, WhatIsNoLevelIsLeftAlone) {
  EXPECT_EQ(find_level("default"), nullptr);
  EXPECT_EQ(find_level("affine:2"), nullptr);
  EXPECT_EQ(written_out({.preset = "affine:2"}).preset, "affine:2");
  test::expect_error(ErrorCode::invalid_spec,
                     "session: level 'gact:L2.5' (allowed: gact:L0, gact:L1, gact:L1.1, gact:L1.2, gact:L2, gact:L2.1, "
                     "gact:L2.2, gact:L3, gact:swap, gact:L4bit-swap)",
                     [] { find_level("gact:L2.5"); });
  test::expect_error(ErrorCode::invalid_spec, "session: bits 1.5 for layers alone (allowed: 1, 2, 3, 4, 8)",
                     [] { written_out({.preset = "actnn:L1", .bits = 1.5}); });
}

TEST(Levels, ThoseWithAHostPartOffloadToTheHostUnlessTheUserSaysWhere) {
  for (const Level& level : levels()) {
    EXPECT_EQ(level.to_host, level.runs_as != level.name) << level.name;
    EXPECT_EQ(written_out({.preset = std::string(level.name)}).offload, level.to_host ? "host" : "") << level.name;
    EXPECT_EQ(written_out({.preset = std::string(level.name), .offload = "/scratch"}).offload, "/scratch");
  }
}

TEST(Levels, TheReportNamesWhatWasAskedForAndWhatRunsOnTheCpu) {
  Session session({.preset = "gact:L4bit-swap"});
  EXPECT_EQ(session.report().runs_as, "") << "not known yet";
  test::FakeMemory memory;
  const test::FakeTensor tensor;
  const Kept kept = session.keep(session.site(test::site_key("", "gelu", "self")), tensor.saved(), Stream(), memory);
  const Report report = session.report();
  EXPECT_EQ(report.preset, "gact:L4bit-swap");
  EXPECT_EQ(report.runs_as, "gact:L1");
  EXPECT_NE(report.to_text().find("'gact:L4bit-swap', run as 'gact:L1'"), std::string::npos);
  EXPECT_NE(report.to_json().find(R"("runs_as": "gact:L1")"), std::string::npos);
  EXPECT_EQ(Session({.preset = "gact:L1"}).report().runs_as, "");
}

TEST(CodecFamily, KeepsTheBitsAndChangesTheRest) {
  const CodecFamily affine = parse_family("affine:nearest:group=64");
  EXPECT_EQ(to_string(in_family(Rotated{.bits = Bits(3)}, affine)), "affine:3:nearest:group=64");
  EXPECT_EQ(to_string(in_family(parse_spec("affine:8:nearest"), affine)), "affine:8:nearest:group=64");
  EXPECT_EQ(to_string(in_family(parse_spec("rotated:2:mask"), affine)), "rotated:2:mask");
  EXPECT_EQ(to_string(in_family(parse_spec("affine:8:nearest:stats=f32:floor=-32"), affine)),
            "affine:8:nearest:stats=f32:floor=-32");
  EXPECT_EQ(to_string(in_family(Mask{}, affine)), "mask");
  const CodecFamily narrow = parse_family("rotated:group=128");
  EXPECT_EQ(to_string(in_family(parse_spec("rotated:2:mask"), narrow)), "rotated:2:mask:group=128");
  EXPECT_EQ(to_string(in_family(parse_spec("affine:8:nearest"), narrow)), "affine:8:nearest:group=128");
  EXPECT_EQ(parse_family(""), std::nullopt);
  for (const char* text : {"cast:bf16", "rotated:mask"}) {
    test::expect_error(
        ErrorCode::invalid_spec,
        std::string("session: codec '") + text + "' (allowed: rotated or affine, as in affine:nearest:group=64)",
        [&] { parse_family(text); });
  }
}

}  // namespace
}  // namespace actzip
