#include "actzip/policy.hpp"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "actzip/codec.hpp"
#include "actzip/error.hpp"
#include "operators_of_tests.hpp"

namespace actzip {
namespace {

constexpr std::int64_t kSome = 4096;

Choice choose(const Policy& policy, std::string_view op, std::string_view slot, DType dtype = DType::f32,
              std::int64_t elems = kSome, const OperatorFacts& facts = {}) {
  return policy.choose(policy.row(test::site_key("", op, slot)), dtype, Shape::contiguous({elems}), facts);
}

std::string spec_of(const Choice& choice) { return choice.how == Keep::encoded ? to_string(choice.spec) : "-"; }

TEST(Policy, EveryUseHasARowAndAName) {
  const auto rows = policy_table();
  ASSERT_EQ(rows.size(), static_cast<std::size_t>(kUses));
  for (const Use use : all_uses()) {
    const SiteKey site{.module = "", .op = "op", .slot = "slot", .ordinal = 0, .use = use};
    EXPECT_EQ(Policy().row(site).use, use);
    EXPECT_EQ(&rows[static_cast<std::size_t>(use)], &policy_table()[static_cast<std::size_t>(use)]);
    EXPECT_EQ(rows[static_cast<std::size_t>(use)].use, use) << to_string(use);
    EXPECT_EQ(parse_use(to_string(use)), use);
  }
  EXPECT_EQ(parse_use("linear"), std::nullopt);
}

TEST(Policy, WhatIsNotKnownIsKept) {
  EXPECT_EQ(choose(Policy(), "no_such_operator", "x").how, Keep::as_is);
  EXPECT_EQ(choose(Policy("default", Bits(8)), "no_such_operator", "x").how, Keep::as_is);
  EXPECT_EQ(spec_of(choose(Policy("affine:2"), "no_such_operator", "x")), "affine:2");
  const std::vector<Rule> rules = {{"no_such_operator.*", "rotated:4"}};
  EXPECT_EQ(spec_of(choose(Policy("default", std::nullopt, rules), "no_such_operator", "x")), "rotated:4");
}

TEST(Policy, GroupsRestartAtRowsOfNorms) {
  const auto segments = [](std::int64_t row_elems, int group, const Shape& shape, Use use = Use::row_norm_input) {
    const PolicyRow& row = policy_table()[static_cast<std::size_t>(use)];
    return row_segments(row, Rotated{.bits = Bits(2), .group = GroupSize(group)}, shape, row_elems).count;
  };
  EXPECT_EQ(segments(300, 256, Shape::contiguous({8, 300})), 1) << "512 of 300 is too much";
  EXPECT_EQ(segments(320, 128, Shape::contiguous({8, 320})), 8);
  EXPECT_EQ(segments(384, 128, Shape::contiguous({8, 384})), 1) << "they do so anyway";
  EXPECT_EQ(segments(320, 128, Shape::contiguous({8, 320}), Use::batch_norm_input), 1);
  EXPECT_EQ(segments(16, 128, Shape::contiguous({8, 16})), 1) << "tiny rows have no groups of their own";
  EXPECT_EQ(segments(320, 128, Shape{2, {8, 320}, {1, 8}}), 1) << "rows do not lie one after the other";
  EXPECT_EQ(segments(320, 128, Shape{3, {2, 4, 320}, {1280, 320, 1}}), 8);
}

TEST(Policy, ShortRowsHaveAGroupEach) {
  const PolicyRow& row = policy_table()[static_cast<std::size_t>(Use::row_norm_input)];
  for (const auto& [width, spec, segments] :
       {std::tuple(64, "affine:4:dithered:group=64", 1), std::tuple(48, "affine:4:dithered:group=64", 8),
        std::tuple(200, "affine:4:dithered", 8), std::tuple(128, "rotated:4:group=128", 1),
        std::tuple(31, "cast:bf16", 1)}) {
    const Shape shape = Shape::contiguous({8, width});
    const Choice choice = Policy().choose(row, DType::f32, shape, {.row_elems = width});
    EXPECT_EQ(to_string(choice.spec), spec);
    EXPECT_EQ(row_segments(row, choice.spec, shape, width).count, segments) << width;
  }
}

TEST(Policy, ProductsAndExponentialsInALossAreFine) {
  for (const Use use : {Use::linear_input, Use::batched_operand, Use::factor, Use::exponential_result}) {
    const PolicyRow& row = policy_table()[static_cast<std::size_t>(use)];
    const Shape shape = Shape::contiguous({512, 512});
    EXPECT_EQ(to_string(Policy().choose(row, DType::f32, shape, {.after_model = true}).spec), "cast:bf16");
    EXPECT_NE(to_string(Policy().choose(row, DType::f32, shape, {}).spec), "cast:bf16");
  }
}

TEST(Policy, ProbabilitiesInALossAreKept) {
  for (const Use use : {Use::softmax_result, Use::bounded_result}) {
    const PolicyRow& row = policy_table()[static_cast<std::size_t>(use)];
    const Shape shape = Shape::contiguous({64, 512});
    EXPECT_EQ(Policy().choose(row, DType::f32, shape, {.after_model = true}).how, Keep::as_is);
    EXPECT_EQ(spec_of(Policy("affine:2").choose(row, DType::f32, shape, {.after_model = true})), "affine:2");
    EXPECT_EQ(Policy().choose(row, DType::f32, shape, {}).how, Keep::encoded);
  }
}

TEST(Policy, PowersWhoseGradientIsNotLinearGetMoreBits) {
  const PolicyRow& row = policy_table()[static_cast<std::size_t>(Use::power_base)];
  for (const auto& [exponent, spec] : {std::tuple(2.0F, "rotated:2"), std::tuple(3.0F, "rotated:4"),
                                       std::tuple(4.0F, "rotated:4"), std::tuple(5.0F, "cast:bf16")}) {
    const OperatorFacts facts{.exponent = exponent, .row_elems = 512};
    EXPECT_EQ(spec_of(Policy().choose(row, DType::f32, Shape::contiguous({64, 512}), facts)), spec) << exponent;
  }
}

TEST(Policy, ProbabilitiesAreKeptAsTheSoftmaxKeepsThem) {
  const OperatorFacts facts{.is_probability = true};
  const auto kept = [&](const Policy& policy, const OperatorFacts& of_call) {
    return spec_of(choose(policy, "bmm", "self", DType::f32, kSome, of_call));
  };
  EXPECT_EQ(kept(Policy(), {}), "rotated:4");
  EXPECT_EQ(kept(Policy(), facts), "affine:8") << "rounded without a bias";
  EXPECT_EQ(spec_of(choose(Policy(), "softmax", "result")), "affine:8");
  EXPECT_EQ(kept(Policy("exact"), facts), "-");
  const std::vector<Rule> rules{{"bmm.*", "rotated:2"}};
  EXPECT_EQ(kept(Policy("default", std::nullopt, rules), facts), "rotated:2");
}

TEST(Policy, WhatOthersSaveIsKeptButForPresetsThatTreatAllAlike) {
  EXPECT_EQ(choose(Policy(), "mylib::relu", "self").how, Keep::as_is);
  EXPECT_EQ(spec_of(choose(Policy("affine:2"), "mylib::relu", "self")), "affine:2");
}

TEST(Policy, RulesByUse) {
  const std::vector<Rule> rules = {{"use:linear_*", "rotated:4"}, {"use:gelu_input", "none"}, {"use:sign", "affine:2"}};
  const Policy policy("default", std::nullopt, rules);
  EXPECT_EQ(spec_of(choose(policy, "addmm", "mat1")), "rotated:4");
  EXPECT_EQ(spec_of(choose(policy, "linear", "input")), "rotated:4");
  EXPECT_EQ(choose(policy, "gelu", "self").how, Keep::as_is);
  EXPECT_EQ(spec_of(choose(policy, "silu", "self")), "rotated:4") << "by the table";
  EXPECT_EQ(spec_of(choose(policy, "relu", "result")), "mask") << "a rule for values leaves masks";
  // Patterns without the prefix do not look at uses: this one would match most of them.
  const std::vector<Rule> others = {{"*_input", "none"}};
  EXPECT_EQ(choose(Policy("default", std::nullopt, others), "addmm", "mat1").how, Keep::encoded);
}

TEST(Policy, LimitsBecomeAMaskThatKeepsItsSides) {
  const Choice choice = choose(Policy(), "hardtanh", "self", DType::f32, kSome, {.interval = {-2, 4}});
  const auto& mask = std::get<Mask>(choice.spec);
  EXPECT_LE(mask.off, -2);
  EXPECT_GT(mask.on, -2);
  EXPECT_LT(mask.on, 4);
}

TEST(Policy, WhatOneBitCannotSayIsKeptAsItIs) {
  const auto kept = [](DType dtype, const OperatorFacts& facts) {
    return choose(Policy("exact"), "hardtanh", "self", dtype, kSome, facts).how;
  };
  EXPECT_EQ(kept(DType::f32, {.interval = {-0.1F, 0.1F}}), Keep::encoded);
  EXPECT_EQ(kept(DType::bf16, {.interval = {-0.1F, 0.1F}}), Keep::as_is);
  EXPECT_EQ(kept(DType::f32, {.interval = {1.0F, 1.0F}}), Keep::as_is);
  EXPECT_EQ(kept(DType::f32, {.interval = {-1.0F, 1.0F}, .asks_one_bit = false}), Keep::as_is);
}

TEST(Policy, ExactKeepsEveryValueButWhatNoGradientAsksFor) {
  const Policy exact("exact");
  EXPECT_EQ(choose(exact, "convolution", "input").how, Keep::as_is);
  EXPECT_EQ(choose(exact, "never_heard_of", "x").how, Keep::as_is);
  EXPECT_EQ(spec_of(choose(exact, "relu", "result")), "mask");
  EXPECT_EQ(choose(exact, "max_pool", "self").how, Keep::shape_only);
}

TEST(Policy, AttentionThatCannotRunAgainGetsEightBits) {
  const OperatorFacts keeps_sums{.keeps_sums = true};
  for (const std::string_view slot : {"query", "key", "value", "result"}) {
    const auto kept = [&](const Policy& policy) {
      return spec_of(choose(policy, "attention", slot, DType::bf16, kSome, keeps_sums));
    };
    EXPECT_EQ(kept(Policy()), "affine:8:dithered") << slot;
    EXPECT_EQ(kept(Policy("rotated:4")), "rotated:4") << slot;
    const std::vector<Rule> rules{{"*", "rotated:3"}};
    EXPECT_EQ(kept(Policy("default", std::nullopt, rules)), "rotated:3") << slot;
  }
  EXPECT_EQ(choose(Policy(), "attention", "aux0", DType::bf16, kSome, keeps_sums).how, Keep::as_is);
  EXPECT_EQ(choose(Policy("exact"), "attention", "query", DType::bf16, kSome, keeps_sums).how, Keep::as_is);
}

TEST(Policy, AttentionRunsAgainWhereItCan) {
  constexpr std::string_view kAttention = "attention";
  const OperatorFacts again{.recomputable = true};
  const auto kept = [&](const Policy& policy, std::string_view slot, const OperatorFacts& facts) {
    return choose(policy, kAttention, slot, DType::bf16, kSome, facts);
  };
  EXPECT_EQ(kept(Policy(), "result", again).how, Keep::recomputed);
  EXPECT_EQ(kept(Policy(), "aux0", again).how, Keep::recomputed);
  EXPECT_EQ(kept(Policy("division:all"), "result", again).how, Keep::recomputed);
  EXPECT_EQ(spec_of(kept(Policy(), "result", {})), "rotated:2");
  EXPECT_EQ(kept(Policy(), "aux0", {}).how, Keep::as_is);
  EXPECT_EQ(kept(Policy("exact"), "result", again).how, Keep::as_is);
  EXPECT_EQ(kept(Policy("division"), "result", again).how, Keep::as_is);
  EXPECT_EQ(spec_of(kept(Policy("rotated:4"), "result", again)), "rotated:4");
  // An operand is one whatever an adapter says, and a rule goes first.
  EXPECT_EQ(spec_of(kept(Policy(), "value", again)), "rotated:3");
  const std::vector<Rule> rules{{"*", "rotated:3"}};
  const Policy ruled("default", std::nullopt, rules);
  EXPECT_EQ(spec_of(kept(ruled, "result", again)), "rotated:3");
  EXPECT_EQ(kept(ruled, "aux0", again).how, Keep::as_is) << "nothing is left to run again for";
  const std::vector<Rule> others{{"*.query", "as is"}, {"1: *", "default"}, {"*.aux0", "as is"}};
  EXPECT_EQ(kept(Policy("default", std::nullopt, others), "aux0", again).how, Keep::recomputed);
  const std::vector<Rule> of_site{{"layers.1: *.result", "rotated:3"}};
  const Policy by_site("default", std::nullopt, of_site);
  EXPECT_EQ(by_site.row(test::site_key("layers.1", kAttention, "aux0")).treatment, Treatment::exactly);
  EXPECT_EQ(by_site.row(test::site_key("layers.2", kAttention, "aux0")).treatment, Treatment::again_or_exactly);
}

TEST(Policy, IntegersNeedABound) {
  EXPECT_EQ(choose(Policy(), "embedding", "indices", DType::i64).how, Keep::as_is);
  const OperatorFacts facts{.index_bound = 1000};
  EXPECT_EQ(spec_of(choose(Policy(), "embedding", "indices", DType::i64, kSome, facts)), "index:bound=1000");
  EXPECT_EQ(choose(Policy(), "addmm", "mat1", DType::i64, kSome, facts).how, Keep::as_is);
  EXPECT_EQ(choose(Policy(), "embedding", "indices", DType::i64, kSome, {.index_bound = std::int64_t{1} << 40}).how,
            Keep::as_is);
}

TEST(Policy, WhatIsChosenCanBeEncoded) {
  const OperatorFacts facts{.index_bound = 1000};
  for (const char* preset : {"default", "exact", "affine:2", "rotated:4", "cast:f16", "division", "division:4:all"}) {
    const Policy policy(preset);
    for (const PolicyRow& row : policy_table()) {
      for (int type = 0; type <= static_cast<int>(DType::i64); ++type) {
        const auto dtype = static_cast<DType>(type);
        const Choice choice = policy.choose(row, dtype, Shape::contiguous({kLargeElems}), facts);
        EXPECT_FALSE(choice.reason.empty());
        if (choice.how != Keep::encoded) continue;
        EXPECT_NO_THROW((void)encoded_bytes(choice.spec, dtype, kLargeElems)) << preset << " " << to_string(row.use);
      }
    }
  }
}

TEST(Policy, BitsReplaceTheTwoAndMoveTheThree) {
  for (const int bits : {1, 2, 3, 4}) {
    const Policy policy("default", Bits(bits));
    EXPECT_EQ(spec_of(choose(policy, "convolution", "input")), "rotated:" + std::to_string(bits));
    EXPECT_EQ(spec_of(choose(policy, "addmm", "mat1")), "rotated:" + std::to_string(std::min(bits + 1, 4)));
  }
  EXPECT_EQ(spec_of(choose(Policy("default", Bits(8)), "addmm", "mat1")), "affine:8:dithered");
  EXPECT_EQ(spec_of(choose(Policy("default", Bits(1)), "bmm", "self")), "rotated:4");
  EXPECT_EQ(spec_of(choose(Policy("default", Bits(8)), "gelu", "self")), "affine:8:dithered");
  EXPECT_THROW(Policy("default", Bits(5)), Error);
  EXPECT_THROW(Policy("exact", Bits(2)), Error);
}

TEST(Policy, RulesComeBeforeThePreset) {
  const std::vector<Rule> rules = {{"gelu.*", "affine:4"}, {"layers.1: *", "default"}, {"layers.*", "as is"}};
  for (const char* preset : {"default", "exact", "rotated:1"}) {
    const Policy policy(preset, std::nullopt, rules);
    const auto chosen = [&](std::string_view module, std::string_view op, std::string_view slot,
                            DType dtype = DType::f32) {
      return policy.choose(policy.row(test::site_key(module, op, slot)), dtype, Shape::contiguous({kSome}), {});
    };
    EXPECT_EQ(spec_of(chosen("layers.0", "gelu", "self")), "affine:4");
    EXPECT_EQ(chosen("layers.0", "addmm", "mat1").how, Keep::as_is);
    EXPECT_EQ(chosen("layers.0", "dropout", "result1", DType::boolean).how, Keep::as_is);
    EXPECT_EQ(spec_of(chosen("layers.1", "addmm", "mat1")), spec_of(choose(Policy(preset), "addmm", "mat1")));
  }
}

TEST(Policy, NoneIsAnotherWordForAsIs) {
  for (const char* keep : {"none", "as is"}) {
    const std::vector<Rule> rules = {{"gelu.*", keep}};
    const Policy policy("default", std::nullopt, rules);
    EXPECT_EQ(choose(policy, "gelu", "self").how, Keep::as_is) << keep;
    EXPECT_EQ(choose(policy, "gelu", "self").reason, "a rule of the session") << keep;
    EXPECT_EQ(choose(policy, "silu", "self").how, Keep::encoded) << keep;
  }
}

TEST(Policy, PatternsForOneModuleAndForEverythingInsideIt) {
  const auto chosen = [](const char* pattern, const std::string& module) {
    const std::vector<Rule> rules = {{pattern, "none"}};
    const Policy policy("default", std::nullopt, rules);
    const PolicyRow& row = policy.row(test::site_key(module, "addmm", "mat1"));
    return policy.choose(row, DType::f32, Shape::contiguous({kSome}), {}).how == Keep::as_is;
  };
  using Modules = std::vector<bool>;  // the module itself, one inside it, and a neighbour whose name begins alike
  const auto all = [&](const char* pattern) {
    return Modules{chosen(pattern, "layers.1"), chosen(pattern, "layers.1.fc"), chosen(pattern, "layers.10")};
  };
  EXPECT_EQ(all("layers.1[.:]*"), (Modules{true, true, false}));
  EXPECT_EQ(all("layers.1: *"), (Modules{true, false, false}));
  EXPECT_EQ(all("layers.1.*"), (Modules{false, true, false}));
}

TEST(Policy, RulesLeaveMasksAndShapes) {
  const std::vector<Rule> rules = {{"*", "rotated:4"}};
  const Policy policy("default", std::nullopt, rules);
  const auto chosen = [&](std::string_view op, std::string_view slot) {
    return policy.choose(policy.row(test::site_key("", op, slot)), DType::f32, Shape::contiguous({kSome}), {});
  };
  EXPECT_EQ(spec_of(chosen("relu", "result")), "mask");
  EXPECT_EQ(chosen("max_pool", "self").how, Keep::shape_only);
  EXPECT_EQ(spec_of(chosen("addmm", "mat1")), "rotated:4");
}

TEST(Policy, WrongRulesSayWhatIsAllowed) {
  for (const Rule& rule : {Rule{"gelu.*", "best"}, Rule{"gelu.*", "mask"}, Rule{"gelu.*", ""}, Rule{"", "as is"},
                           Rule{"use:gelu", "as is"}}) {
    try {
      const Policy policy("default", std::nullopt, std::span(&rule, 1));
      ADD_FAILURE() << rule.keep;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_spec);
      EXPECT_NE(std::string(error.what()).find("allowed"), std::string::npos) << error.what();
    }
  }
}

/// A map of [2, 32, 12, 12] in either memory format.
const Shape kMaps = Shape::contiguous({2, 32, 12, 12});
constexpr Shape kMapsLast{4, {2, 32, 12, 12}, {4608, 1, 384, 32}};

std::string division_of(const Policy& policy, std::string_view op, std::string_view slot, const Shape& shape) {
  return spec_of(policy.choose(policy.row(test::site_key("", op, slot)), DType::f32, shape, {.row_elems = 4096}));
}

TEST(Policy, DivisionTakesMapsApartAndKeepsTheRest) {
  const Policy policy("division");
  for (const char* op : {"convolution", "batch_norm"}) {
    EXPECT_EQ(division_of(policy, op, "input", kMaps), "dual:2:size=12x12") << op;
    EXPECT_EQ(division_of(policy, op, "input", kMapsLast), "dual:2:size=12x12:last=32") << op;
    EXPECT_EQ(division_of(policy, op, "input", Shape::contiguous({64, 512, 1, 1})), "-") << "one position";
    EXPECT_EQ(division_of(policy, op, "input", Shape::contiguous({64, 512})), "-") << "no positions";
  }
  EXPECT_EQ(division_of(policy, "convolution", "input", Shape::contiguous({8, 16, 100})), "dual:2:size=100");
  EXPECT_EQ(division_of(policy, "convolution", "input", Shape::contiguous({8, 16, 4, 6, 100})), "dual:2:size=4x6x100");
  EXPECT_EQ(division_of(policy, "addmm", "mat1", kMaps), "-");
  EXPECT_EQ(division_of(policy, "gelu", "self", kMaps), "-");
  EXPECT_EQ(division_of(policy, "batch_norm", "aux0", kMaps), "-") << "statistics";
  EXPECT_EQ(spec_of(choose(policy, "relu", "result")), "mask");
  EXPECT_EQ(choose(policy, "max_pool", "self").how, Keep::shape_only);
  EXPECT_EQ(spec_of(choose(policy, "max_pool", "aux0", DType::i64, kSome, {.index_bound = 9})), "index:bound=9");
}

TEST(Policy, DivisionHasOptions) {
  EXPECT_EQ(division_of(Policy("division:4:dithered:block=4"), "convolution", "input", kMaps),
            "dual:4:dithered:block=4:size=12x12");
  EXPECT_EQ(division_of(Policy("division", Bits(3)), "convolution", "input", kMaps), "dual:3:size=12x12");
  EXPECT_EQ(division_of(Policy("division:block=16", Bits(3)), "convolution", "input", kMaps),
            "dual:3:block=16:size=12x12");
  const Policy all("division:all");
  EXPECT_EQ(division_of(all, "convolution", "input", kMaps), "dual:2:size=12x12");
  EXPECT_EQ(spec_of(choose(all, "addmm", "mat1")), "rotated:3");
  EXPECT_EQ(division_of(all, "convolution", "input", Shape::contiguous({64, 512, 1, 1})), "rotated:2");
  for (const char* preset : {"division:9", "division:size=4x4", "division:last=3", "division:nearest", "divisions",
                             "division:all:2", "division:"}) {
    EXPECT_THROW(Policy{preset}, Error) << preset;
  }
  EXPECT_THROW(Policy("division:4", Bits(3)), Error);
}

TEST(Policy, ADualOfARuleFitsTheTensor) {
  const std::vector<Rule> rules = {{"convolution.*", "dual:4"}};
  const Policy policy("default", std::nullopt, rules);
  EXPECT_EQ(division_of(policy, "convolution", "input", kMapsLast), "dual:4:size=12x12:last=32");
  EXPECT_EQ(division_of(policy, "convolution", "input", Shape::contiguous({64, 512})), "-");
}

TEST(Policy, UnknownPresetNamesWhatIsAllowed) {
  for (const char* preset : {"best", "mask", "index:bound=4", ""}) {
    try {
      const Policy policy(preset);
      ADD_FAILURE() << preset;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_spec);
      EXPECT_NE(std::string(error.what()).find("default, exact, division"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace actzip
