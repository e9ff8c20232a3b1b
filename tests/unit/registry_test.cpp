#include "actzip/registry.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "expect_error.hpp"

namespace actzip {
namespace {

std::vector<CodecSpec> all_variants() {
  std::vector<CodecSpec> all;
  for (const CodecInfo& info : codecs()) all.insert(all.end(), info.variants.begin(), info.variants.end());
  return all;
}

TEST(Registry, EntriesStandInTheOrderOfTheSpecs) {
  ASSERT_EQ(codecs().size(), std::variant_size_v<CodecSpec>);
  for (std::size_t i = 0; i < codecs().size(); ++i) {
    for (const CodecSpec& spec : codecs()[i].variants) {
      EXPECT_EQ(spec.index(), i);
      EXPECT_EQ(&codec_info(spec), &codecs()[i]);
    }
  }
}

TEST(Registry, EveryEntryIsCompleteAndItsGrammarBeginsWithItsName) {
  for (const CodecInfo& info : codecs()) {
    EXPECT_FALSE(info.summary.empty());
    EXPECT_TRUE(info.grammar.starts_with(info.name)) << info.grammar;
    EXPECT_FALSE(info.variants.empty());
    EXPECT_FALSE(info.encodes.empty());
    EXPECT_FALSE(info.decodes.empty());
  }
}

TEST(Registry, GrammarsAreMadeOfTheFields) {
  const auto grammar_of = [](const CodecSpec& spec) { return std::string(codec_info(spec).grammar); };
  EXPECT_EQ(grammar_of(Affine{}),
            "affine[:1..8][:nearest|stochastic|dithered][:group=32..1024][:stats=bf16|f32][:floor=X]");
  EXPECT_EQ(grammar_of(Rotated{}), "rotated[:1..4][:mask][:group=128|256][:stats=bf16|f32]");
  EXPECT_EQ(grammar_of(Mask{}), "mask[:lo=X][:hi=X][:off=X][:on=X][:nan=off|on]");
  EXPECT_EQ(grammar_of(Index{}), "index[:bound=1..4294967296]");
  EXPECT_EQ(grammar_of(Cast{}), "cast[:bf16|f16]");
  EXPECT_EQ(grammar_of(Copy{}), "copy");
  EXPECT_EQ(grammar_of(Dual{}),
            "dual[:1..8][:stochastic|dithered][:block=2..32][:size=WIDTH|HxW|DxHxW][:last=CHANNELS]");
}

TEST(Registry, VariantsAreValidDistinctAndAllThere) {
  std::vector<std::size_t> counts;
  for (const CodecInfo& info : codecs()) counts.push_back(info.variants.size());
  EXPECT_EQ(counts, (std::vector<std::size_t>{8 * 3, 4 * 2, 1, 6, 2, 1, 8 * 2}));
  std::set<std::string> texts;
  for (const CodecSpec& spec : all_variants()) {
    EXPECT_NO_THROW(validate(spec));
    EXPECT_EQ(parse_spec(to_string(spec)), spec);
    texts.insert(to_string(spec));
  }
  EXPECT_EQ(texts.size(), all_variants().size());
}

TEST(Registry, CodeBitsAreThoseOfTheFormat) {
  EXPECT_EQ(code_bits(Affine{.bits = Bits(7)}, DType::f32), 7);
  EXPECT_EQ(code_bits(Rotated{.bits = Bits(3)}, DType::bf16), 3);
  EXPECT_EQ(code_bits(Mask{}, DType::f32), 1);
  EXPECT_EQ(code_bits(Index{.bound = 50257}, DType::i64), 16);
  EXPECT_EQ(code_bits(Cast{}, DType::f32), 16);
  EXPECT_EQ(code_bits(Copy{}, DType::boolean), 8);
  EXPECT_EQ(code_bits(Copy{}, DType::f64), 64);
  EXPECT_EQ(code_bits(Dual{.bits = Bits(5)}, DType::f32), 5);
  std::vector<int> index_widths;
  for (const CodecSpec& spec : codec_info(Index{}).variants) index_widths.push_back(code_bits(spec, DType::i64));
  EXPECT_EQ(index_widths, (std::vector<int>{1, 2, 4, 8, 16, 32}));
}

TEST(Registry, TraitsAreWhatTheCodecsPromise) {
  const auto row = [](const CodecSpec& spec) {
    const Traits t = traits(spec);
    std::string text;
    for (const bool trait : {t.exact, t.byte_equal, t.unbiased, t.keeps_zeros, t.keeps_signs})
      text += trait ? '1' : '0';
    return text;
  };
  // exact, byte_equal, unbiased, keeps_zeros, keeps_signs
  EXPECT_EQ(row(Affine{.rounding = Rounding::nearest}), "01000");
  EXPECT_EQ(row(Affine{}), "01100");
  EXPECT_EQ(row(Affine{.rounding = Rounding::dithered}), "01100");
  EXPECT_EQ(row(Rotated{}), "00100");
  EXPECT_EQ(row(Rotated{.mask_plane = true}), "00110");
  EXPECT_EQ(row(Mask{}), "11011");
  EXPECT_EQ(row(Mask{.hi = 6.0F, .on = 1.25F}), "11011");
  EXPECT_EQ(row(Mask{.lo = -1.0F}), "11000") << "0 is inside the interval, and so are both signs";
  EXPECT_EQ(row(Mask{.off = 0.1F}), "11000") << "a negative slope turns 0 and every negative value positive";
  EXPECT_EQ(row(Mask{.on = -1.0F}), "11010");
  EXPECT_EQ(row(Mask{.lo = -2.0F, .hi = 0.0F, .on = -1.0F}), "11011");
  EXPECT_EQ(row(Index{}), "11111");
  EXPECT_EQ(row(Cast{}), "01011");
  EXPECT_EQ(row(Copy{}), "11111");
  EXPECT_EQ(row(Dual{}), "01100");
}

TEST(Registry, ExactCodecsHaveNoErrorAndOthersHaveSome) {
  for (const CodecSpec& spec : all_variants()) {
    EXPECT_EQ(expected_error(spec) == 0.0, traits(spec).exact) << to_string(spec);
  }
}

TEST(Registry, ErrorsAreWithinThreePercentOfTheKnownFigures) {
  const auto near = [](const CodecSpec& spec, double known) {
    EXPECT_NEAR(expected_error(spec), known, 0.03 * known) << to_string(spec);
  };
  near(Rotated{.bits = Bits(1)}, 0.571);
  near(Rotated{.bits = Bits(2)}, 0.1331);
  near(Rotated{.bits = Bits(3)}, 0.0358);
  near(Rotated{.bits = Bits(4)}, 0.0096);
  near(Affine{.bits = Bits(2)}, 0.596);
  near(Affine{.bits = Bits(4)}, 0.0238);
  near(Affine{.bits = Bits(2), .rounding = Rounding::dithered}, 0.299);
  near(Affine{.bits = Bits(4), .rounding = Rounding::dithered}, 0.0120);
}

TEST(Registry, OneMoreBitMeansLessError) {
  for (const CodecSpec& spec : all_variants()) {
    if (auto* affine = std::get_if<Affine>(&spec); affine != nullptr && affine->bits.value > 1) {
      Affine less = *affine;
      less.bits.value -= 1;
      EXPECT_LT(expected_error(spec), expected_error(less) / 3.9) << to_string(spec);
    }
  }
}

TEST(Registry, ErrorsOfInvalidSpecsAreRefused) {
  test::expect_error(ErrorCode::invalid_spec,
                     "validate: 'rotated:5': bits=5 is not supported by rotated (allowed: 1 to 4)",
                     [] { expected_error(Rotated{.bits = Bits(5)}); });
}

}  // namespace
}  // namespace actzip
