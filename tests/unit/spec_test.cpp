#include "actzip/spec.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>

#include "actzip/registry.hpp"
#include "expect_error.hpp"

namespace actzip {
namespace {

using test::expect_error;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void expect_round_trip(const CodecSpec& spec) {
  const std::string text = to_string(spec);
  EXPECT_NO_THROW(validate(spec)) << text;
  EXPECT_EQ(parse_spec(text), spec) << text;
  EXPECT_EQ(to_string(parse_spec(text)), text);
}

TEST(Spec, CanonicalTextLeavesDefaultsOut) {
  struct Case {
    CodecSpec spec;
    std::string_view text;
  };
  const Case cases[] = {
      {Affine{}, "affine:2"},
      {Affine{.bits = Bits(8), .rounding = Rounding::nearest}, "affine:8:nearest"},
      {Affine{Bits(4), Rounding::dithered, GroupSize(128), StatsType::f32}, "affine:4:dithered:group=128:stats=f32"},
      {Affine{Bits(8), Rounding::nearest, GroupSize(256), StatsType::f32, -32.0F},
       "affine:8:nearest:stats=f32:floor=-32"},
      {Affine{.rounding = Rounding::nearest, .floor = -0x1p126F}, "affine:2:nearest:floor=-8.507059e+37"},
      {Affine{.rounding = Rounding::nearest, .floor = 0x1p126F}, "affine:2:nearest:floor=8.507059e+37"},
      {Rotated{}, "rotated:2"},
      {Rotated{.mask_plane = true}, "rotated:2:mask"},
      {Rotated{Bits(1), GroupSize(128), StatsType::f32, true}, "rotated:1:mask:group=128:stats=f32"},
      {Mask{}, "mask"},
      {Mask{.on = 1.25F}, "mask:on=1.25"},
      {Mask{.lo = -1.0F, .hi = 6.0F, .off = -0.5F, .on = 0.1F}, "mask:lo=-1:hi=6:off=-0.5:on=0.1"},
      {Mask{.lo = -kInf, .on = kInf}, "mask:lo=-inf:on=inf"},
      {Mask{.nan = MaskSide::off}, "mask:nan=off"},
      {Index{}, "index"},
      {Index{.bound = 50257}, "index:bound=50257"},
      {Cast{}, "cast:bf16"},
      {Cast{.to = DType::f16}, "cast:f16"},
      {Copy{}, "copy"},
      {Dual{}, "dual:2"},
      {Dual{Bits(4), Rounding::dithered, 4, {1, 14, 14}, 64}, "dual:4:dithered:block=4:size=14x14:last=64"},
      {Dual{.size = {1, 1, 100}}, "dual:2:size=100"},
      {Dual{.size = {8, 1, 100}}, "dual:2:size=8x1x100"},
  };
  for (const Case& entry : cases) {
    EXPECT_EQ(to_string(entry.spec), entry.text);
    expect_round_trip(entry.spec);
  }
}

TEST(Spec, EveryAffineIsReadBackFromItsText) {
  std::set<std::string> texts;
  for (int bits = 1; bits <= 8; ++bits) {
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic, Rounding::dithered}) {
      for (const int group : {32, 64, 128, 256, 512, 1024}) {
        for (const StatsType stats : {StatsType::bf16, StatsType::f32}) {
          const Affine spec{Bits(bits), rounding, GroupSize(group), stats};
          expect_round_trip(spec);
          texts.insert(to_string(CodecSpec(spec)));
        }
      }
    }
  }
  EXPECT_EQ(texts.size(), 8U * 3 * 6 * 2) << "every spec has a text of its own";
}

TEST(Spec, EveryRotatedIsReadBackFromItsText) {
  for (int bits = 1; bits <= 4; ++bits) {
    for (const int group : {128, 256}) {
      for (const StatsType stats : {StatsType::bf16, StatsType::f32}) {
        for (const bool mask : {false, true}) expect_round_trip(Rotated{Bits(bits), GroupSize(group), stats, mask});
      }
    }
  }
}

TEST(Spec, EveryFloatOfAMaskIsReadBackToTheBit) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 20000; ++trial) {
    const float on = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(on)) continue;
    const Mask mask = std::get<Mask>(parse_spec(to_string(CodecSpec(Mask{.on = on}))));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(mask.on), std::bit_cast<std::uint32_t>(on));
  }
}

TEST(Spec, ANegativeZeroIsKept) {
  EXPECT_EQ(to_string(CodecSpec(Mask{.off = -0.0F})), "mask:off=-0");
  EXPECT_TRUE(std::signbit(std::get<Mask>(parse_spec("mask:off=-0")).off));
}

TEST(Spec, BoundsAreReadBackUpToTheirLimits) {
  for (const std::int64_t bound : {std::int64_t{1}, std::int64_t{2}, std::int64_t{65537}, std::int64_t{1} << 32}) {
    expect_round_trip(Index{.bound = bound});
  }
}

TEST(Spec, ADualOfImpossibleMapsSaysWhatIsAllowed) {
  expect_error(ErrorCode::invalid_spec,
               "parse_spec: 'dual:size=14y14': size=14y14 is not supported by dual (allowed: one to three extents such "
               "as 14x14, each 1 to 2147483647)",
               [] { parse_spec("dual:size=14y14"); });
  for (const char* size : {"", "x", "14x", "x14", "0", "-3", "2x2x2x2", "4294967296", "2x0", "14x14 "}) {
    EXPECT_THROW(parse_spec("dual:size=" + std::string(size)), Error) << size;
  }
  for (const char* part : {"block=1", "block=6", "block=64", "last=0", "nearest", "9", "0"}) {
    EXPECT_THROW(parse_spec("dual:" + std::string(part)), Error) << part;
  }
  expect_error(ErrorCode::invalid_spec,
               "parse_spec: 'dual:size=65536x65536:last=65537': size=65536x65536, last=65537 is not supported by dual "
               "(allowed: 2^48 elements in a sample)",
               [] { parse_spec("dual:size=65536x65536:last=65537"); });
}

TEST(Spec, ANameAloneHasTheDefaults) {
  EXPECT_EQ(parse_spec("affine"), CodecSpec(Affine{}));
  EXPECT_EQ(parse_spec("rotated"), CodecSpec(Rotated{}));
  EXPECT_EQ(parse_spec("cast"), CodecSpec(Cast{}));
}

TEST(Spec, DefaultsMayBeWrittenAndPartsMayComeInAnyOrder) {
  EXPECT_EQ(parse_spec("affine:2:stochastic:group=256:stats=bf16:floor=-inf"), CodecSpec(Affine{}));
  EXPECT_EQ(parse_spec("affine:stats=f32:dithered:3"),
            CodecSpec(Affine{.bits = Bits(3), .rounding = Rounding::dithered, .stats = StatsType::f32}));
}

TEST(Spec, TextThatIsNoSpecIsRefusedWithWhatIsAllowed) {
  constexpr std::string_view kAffine =
      "affine (allowed: affine[:1..8][:nearest|stochastic|dithered][:group=32..1024][:stats=bf16|f32][:floor=X])";
  constexpr std::string_view kRotated = "rotated (allowed: rotated[:1..4][:mask][:group=128|256][:stats=bf16|f32])";
  constexpr std::string_view kMask = "mask (allowed: mask[:lo=X][:hi=X][:off=X][:on=X][:nan=off|on])";
  constexpr std::string_view kCodecs = "a codec (allowed: affine, rotated, mask, index, cast, copy, dual)";
  constexpr std::string_view kNumber = "is not supported by mask (allowed: any number but NaN, with inf and -inf)";
  constexpr std::string_view kGroups = "is not supported by affine (allowed: 32, 64, 128, 256, 512, 1024)";
  constexpr std::string_view kFloors = "is not supported by affine (allowed: -2^126 to 2^126, or -inf for none)";
  constexpr std::string_view kBound = "is not supported by index (allowed: 1 to 4294967296)";
  struct Case {
    std::string_view text;
    std::string fault;
  };
  const auto join = [](std::string_view a, std::string_view b) { return std::string(a) + " " + std::string(b); };
  const Case cases[] = {
      {"", join("'' is not", kCodecs)},
      {"duel:2", join("'duel' is not", kCodecs)},
      {"Affine:2", join("'Affine' is not", kCodecs)},
      {" affine:2", join("' affine' is not", kCodecs)},
      {"affine:9", "bits=9 is not supported by affine (allowed: 1 to 8)"},
      {"affine:0", "bits=0 is not supported by affine (allowed: 1 to 8)"},
      {"affine:-1", "bits=-1 is not supported by affine (allowed: 1 to 8)"},
      {"affine:99999999999", join("'99999999999' is not a part of", kAffine)},
      {"affine:2x", join("'2x' is not a part of", kAffine)},
      {"affine:", join("'' is not a part of", kAffine)},
      {"affine::2", join("'' is not a part of", kAffine)},
      {"affine:2:", join("'' is not a part of", kAffine)},
      {"affine:2:fast", join("'fast' is not a part of", kAffine)},
      {"affine:2:mask", join("'mask' is not a part of", kAffine)},
      {"affine:2:level=3", join("'level=3' is not a part of", kAffine)},
      {"affine:bits=2", join("'bits=2' is not a part of", kAffine)},
      {"affine:2:=3", join("'=3' is not a part of", kAffine)},
      {"affine:2:group", join("'group' is not a part of", kAffine)},
      {"affine:2:group=", join("group=", kGroups)},
      {"affine:2:group=100", join("group=100", kGroups)},
      {"affine:2:group=2048", join("group=2048", kGroups)},
      {"affine:2:group=16", join("group=16", kGroups)},
      {"affine:2:group=128=1", join("group=128=1", kGroups)},
      {"affine:2:stats=f16", "stats=f16 is not supported by affine (allowed: bf16, f32)"},
      {"affine:2:nearest:floor=low", join("floor=low", kFloors)},
      {"affine:2:nearest:floor=nan", join("floor=nan", kFloors)},
      {"affine:2:nearest:floor=inf", join("floor=inf", kFloors)},
      {"affine:2:nearest:floor=-1e38", join("floor=-1e+38", kFloors)},
      {"affine:2:nearest:floor=1e38", join("floor=1e+38", kFloors)},
      {"affine:2:floor=-32",
       "rounding=stochastic, floor=-32 is not supported by affine (allowed: a floor with rounding=nearest)"},
      {"affine:2:floor=0:dithered",
       "rounding=dithered, floor=0 is not supported by affine (allowed: a floor with rounding=nearest)"},
      {"affine:2:4", "bits is given twice (allowed: once)"},
      {"affine:2:nearest:dithered", "rounding is given twice (allowed: once)"},
      {"affine:2:group=64:group=64", "group is given twice (allowed: once)"},
      {"rotated:5", "bits=5 is not supported by rotated (allowed: 1 to 4)"},
      {"rotated:2:dithered", join("'dithered' is not a part of", kRotated)},
      {"rotated:2:group=64", "group=64 is not supported by rotated (allowed: 128, 256)"},
      {"rotated:2:mask:mask", "mask_plane is given twice (allowed: once)"},
      {"mask:1", join("'1' is not a part of", kMask)},
      {"mask:lo=nan", join("lo=nan", kNumber)},
      {"mask:hi=six", join("hi=six", kNumber)},
      {"mask:on=1e99", join("on=1e99", kNumber)},
      {"mask:lo=6:hi=6", "lo=6, hi=6 is not supported by mask (allowed: lo < hi)"},
      {"mask:hi=-1", "lo=0, hi=-1 is not supported by mask (allowed: lo < hi)"},
      {"index:bound=0", join("bound=0", kBound)},
      {"index:bound=4294967297", join("bound=4294967297", kBound)},
      {"index:bound=1e3", join("bound=1e3", kBound)},
      {"cast:f32", "'f32' is not a part of cast (allowed: cast[:bf16|f16])"},
      {"copy:2", "'2' is not a part of copy (allowed: copy)"},
  };
  for (const Case& entry : cases) {
    expect_error(ErrorCode::invalid_spec, "parse_spec: '" + std::string(entry.text) + "': " + entry.fault,
                 [&] { parse_spec(entry.text); });
  }
}

TEST(Spec, ValuesOutOfRangeAreRefused) {
  struct Case {
    CodecSpec spec;
    std::string_view message;
  };
  const Case cases[] = {
      {Affine{.bits = Bits(9)}, "validate: 'affine:9': bits=9 is not supported by affine (allowed: 1 to 8)"},
      {Affine{.rounding = static_cast<Rounding>(3)},
       "validate: 'affine:2:unknown': rounding=unknown is not supported by affine (allowed: nearest, stochastic, "
       "dithered)"},
      {Affine{.group = GroupSize(-256)},
       "validate: 'affine:2:group=-256': group=-256 is not supported by affine (allowed: 32, 64, 128, 256, 512, "
       "1024)"},
      {Affine{.rounding = Rounding::nearest, .floor = kNan},
       "validate: 'affine:2:nearest:floor=nan': floor=nan is not supported by affine (allowed: -2^126 to 2^126, or "
       "-inf for none)"},
      {Affine{.floor = -32.0F},
       "validate: 'affine:2:floor=-32': rounding=stochastic, floor=-32 is not supported by affine (allowed: a floor "
       "with rounding=nearest)"},
      {Rotated{.stats = static_cast<StatsType>(2)},
       "validate: 'rotated:2:stats=unknown': stats=unknown is not supported by rotated (allowed: bf16, f32)"},
      {Mask{.off = kNan},
       "validate: 'mask:off=nan': off=nan is not supported by mask (allowed: any number but NaN, with inf and -inf)"},
      {Mask{.lo = 1.0F, .hi = -1.0F},
       "validate: 'mask:lo=1:hi=-1': lo=1, hi=-1 is not supported by mask (allowed: lo < hi)"},
      {Index{.bound = -5}, "validate: 'index:bound=-5': bound=-5 is not supported by index (allowed: 1 to 4294967296)"},
      {Cast{.to = DType::f64}, "validate: 'cast:f64': type=f64 is not supported by cast (allowed: bf16, f16)"},
  };
  for (const Case& entry : cases) {
    expect_error(ErrorCode::invalid_spec, entry.message, [&] { validate(entry.spec); });
  }
}

TEST(Spec, IndexTakesTheFewestBitsThatHoldTheBound) {
  struct Case {
    std::int64_t bound;
    int bits;
  };
  for (const Case& entry : {Case{1, 1}, Case{2, 1}, Case{3, 2}, Case{4, 2}, Case{5, 4}, Case{16, 4}, Case{17, 8},
                            Case{256, 8}, Case{257, 16}, Case{65536, 16}, Case{65537, 32}, Case{1LL << 32, 32}}) {
    EXPECT_EQ(index_bits(entry.bound), entry.bits) << entry.bound;
  }
}

}  // namespace
}  // namespace actzip
