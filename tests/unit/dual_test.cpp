#include "actzip/dual.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "actzip/codec.hpp"
#include "format/dual.hpp"
#include "math/dual.hpp"

namespace actzip {
namespace {

std::string text_for(const Shape& shape) {
  const std::optional<Dual> spec = dual_spec(Dual{}, shape);
  return spec ? to_string(CodecSpec(*spec)) : "none";
}

TEST(DualSpec, KnowsWhereChannelsLie) {
  EXPECT_EQ(text_for(Shape::contiguous({4, 3, 9})), "dual:2:size=9");
  EXPECT_EQ(text_for(Shape::contiguous({4, 3, 9, 7})), "dual:2:size=9x7");
  EXPECT_EQ(text_for(Shape::contiguous({4, 3, 5, 9, 7})), "dual:2:size=5x9x7");
  EXPECT_EQ(text_for({3, {4, 3, 9}, {27, 1, 3}}), "dual:2:size=9:last=3");
  EXPECT_EQ(text_for({4, {4, 3, 9, 7}, {189, 1, 21, 3}}), "dual:2:size=9x7:last=3");
  EXPECT_EQ(text_for({5, {4, 3, 5, 9, 7}, {945, 1, 189, 21, 3}}), "dual:2:size=5x9x7:last=3");
}

TEST(DualSpec, GapsAndDimensionsOfOneElementChangeNothing) {
  EXPECT_EQ(text_for({4, {4, 3, 9, 7}, {9999, 300, 20, 2}}), "dual:2:size=9x7");
  EXPECT_EQ(text_for({4, {4, 1, 9, 7}, {63, 1, 7, 1}}), "dual:2:size=9x7");
  EXPECT_EQ(text_for({4, {1, 3, 9, 7}, {1, 63, 7, 1}}), "dual:2:size=9x7");
  EXPECT_EQ(text_for(Shape::contiguous({4, 3, 1, 7})), "dual:2:size=7");
}

TEST(DualSpec, HasNoneForWhatHasNoMaps) {
  EXPECT_EQ(text_for(Shape::contiguous({4, 512})), "none");
  EXPECT_EQ(text_for(Shape::contiguous({4, 512, 1, 1})), "none");
  EXPECT_EQ(text_for(Shape::contiguous({2, 2, 2, 2, 2, 2})), "none");
  EXPECT_EQ(text_for(Shape::contiguous({4, 0, 9, 7})), "none");
  EXPECT_EQ(text_for({4, {4, 3, 9, 7}, {189, 63, 1, 9}}), "none") << "a transposed map";
  EXPECT_EQ(text_for({4, {4, 3, 9, 7}, {0, 63, 7, 1}}), "none") << "expanded";
}

TEST(DualLayout, CountsRaggedBlocksAndSamplesCutShort) {
  const format::DualLayout layout = format::dual_layout(Dual{.size = {1, 14, 10}, .last = 3}, 14 * 10 * 3 + 50);
  EXPECT_EQ(layout.samples, 2);
  EXPECT_EQ(layout.blocks, 4);
  EXPECT_EQ(layout.present(0, 2), 140);
  EXPECT_EQ(layout.present(1, 0), 17);
  EXPECT_EQ(layout.present(1, 1), 17);
  EXPECT_EQ(layout.present(1, 2), 16);
  std::int64_t whole = 0;
  std::int64_t cut = 0;
  for (std::int64_t block = 0; block < 4; ++block) {
    whole += format::block_count(layout, format::block_box(layout, block), 140);
    cut += format::block_count(layout, format::block_box(layout, block), 17);
  }
  EXPECT_EQ(whole, 140);
  EXPECT_EQ(cut, 17);
  EXPECT_EQ(format::block_count(layout, format::block_box(layout, 3), 140), 6 * 2);
  EXPECT_EQ(format::block_of(layout, 8 * 10 + 8), 3);
}

TEST(DualBytes, AreThoseOfTheEncoding) {
  const Dual spec{.bits = Bits(3), .size = {1, 14, 10}, .last = 3};
  constexpr std::int64_t kElems = 2 * 14 * 10 * 3;
  const DualBytes bytes = dual_bytes(spec, kElems);
  EXPECT_EQ(bytes.statistics, 2U * 3U * 4U);
  EXPECT_EQ(bytes.averages, 2U * 3U * 4U * 2U) << "four blocks a map, at the edges ragged ones";
  EXPECT_EQ(bytes.codes, 4U * ((kElems * 3U + 31U) / 32U));
  const auto padded = [](std::size_t size) { return (size + 15U) / 16U * 16U; };
  EXPECT_EQ(padded(bytes.statistics + bytes.averages) + padded(bytes.codes), encoded_bytes(spec, DType::f32, kElems));
}

TEST(DualBytes, RefusesWhatHasNoLayout) {
  EXPECT_THROW((void)dual_bytes(Dual{}, -1), Error);
  EXPECT_THROW((void)dual_bytes(Dual{.block = 3}, 64), Error);
}

/// Section 9 of format.md: bytes whose statistics are 0 decode to averages, with noise or without.
TEST(DualBytes, WithoutStatisticsTheAveragesAreLeft) {
  for (const Rounding rounding : {Rounding::stochastic, Rounding::dithered}) {
    const Dual spec{.rounding = rounding, .block = 2, .size = {1, 2, 4}};
    const std::array<float, 8> values = {1, 2, 10, 20, 3, 6, 30, 60};
    const Shape shape = Shape::contiguous({8});
    alignas(16) std::array<std::byte, 64> bytes{};
    const ByteSpan span{bytes.data(), encoded_bytes(spec, DType::f32, 8)};
    ASSERT_LE(span.size, bytes.size());
    encode(spec, {values.data(), DType::f32, shape}, span, Seed(7), Stream());
    std::fill_n(bytes.begin(), dual_bytes(spec, 8).statistics, std::byte{0});
    std::array<float, 8> low{};
    decode(spec, span, {low.data(), DType::f32, shape}, Seed(7), Stream());
    EXPECT_EQ(low, (std::array<float, 8>{3, 3, 30, 30, 3, 3, 30, 30})) << to_string(rounding);
  }
}

TEST(DualArithmetic, AveragesAreBf16AndNeverMinusZero) {
  EXPECT_EQ(math::dual_average(10.0F, 4.0F), 2.5F);
  EXPECT_EQ(math::bits_of(math::dual_average(-0x1p-149F, 64.0F)), 0U);
  EXPECT_EQ(math::dual_average(1.0F, 3.0F), 0x1.56p-2F);
  EXPECT_EQ(math::bits_of(math::dual_average(0.0F, 0.0F)), 0U);
}

TEST(DualArithmetic, AMapWithoutResidualsIsUnrepresentable) {
  const float inverse = math::affine_inverse_levels(2);
  EXPECT_TRUE(math::is_nan(math::dual_residual(1.0F, __builtin_inff())));
  EXPECT_TRUE(math::is_nan(math::lesser_or_nan(1.0F, math::float_of(math::kNanF32))));
  EXPECT_TRUE(math::is_nan(math::lesser_or_nan(math::float_of(math::kNanF32), 1.0F)));
  EXPECT_TRUE(math::is_nan(math::dual_group(inverse, math::float_of(math::kNanF32), 1.0F).min));
  EXPECT_EQ(math::dual_group(inverse, __builtin_inff(), -__builtin_inff()).min, 0.0F) << "no elements";
}

}  // namespace
}  // namespace actzip
