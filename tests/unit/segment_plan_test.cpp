#include "actzip/segment_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "actzip/error.hpp"
#include "actzip/plan.hpp"
#include "actzip/registry.hpp"
#include "expect_error.hpp"

namespace actzip {
namespace {

using test::expect_error;

ConstByteSpan bytes_of(const std::vector<float>& numbers) {
  return {reinterpret_cast<const std::byte*>(numbers.data()), numbers.size() * sizeof(float)};
}
ByteSpan bytes_of(std::vector<float>& numbers) {
  return {reinterpret_cast<std::byte*>(numbers.data()), numbers.size() * sizeof(float)};
}

CodecSpec with_bits(CodecSpec spec, int bits) {
  if (auto* affine = std::get_if<Affine>(&spec)) affine->bits = Bits(bits);
  if (auto* rotated = std::get_if<Rotated>(&spec)) rotated->bits = Bits(bits);
  return spec;
}

struct Planned {
  std::vector<int> bits;
  SegmentSummary summary;
};

Planned planned(const CodecSpec& spec, const std::vector<float>& weights, std::int64_t total, int least = 1) {
  const auto count = static_cast<std::int64_t>(weights.size());
  std::vector<std::byte> table(weights.size(), std::byte{99});
  Planned result;
  plan_segments(spec, bytes_of(weights), {count, total}, {table.data(), table.size()}, &result.summary, Stream(),
                Bits(least));
  for (const std::byte bits : table) result.bits.push_back(std::to_integer<int>(bits));
  return result;
}

double variance(const CodecSpec& spec, const std::vector<float>& weights, const std::vector<int>& bits) {
  double sum = 0.0;
  for (std::size_t s = 0; s < weights.size(); ++s) sum += weights[s] * expected_error(with_bits(spec, bits[s]));
  return sum;
}

/// By the solver of plans, which proves what it finds.
double least_variance(const CodecSpec& spec, const std::vector<float>& weights, std::int64_t total, int least,
                      int most) {
  std::vector<PlanItem> items;
  for (const float weight : weights) {
    PlanItem item{.elems = 1024, .sensitivity = weight};
    for (int bits = least; bits <= most; ++bits) {
      const CodecSpec choice = with_bits(spec, bits);
      item.choices.push_back({.spec = choice, .bits = bits, .error = expected_error(choice)});
    }
    items.push_back(item);
  }
  return solve_plan(items, AverageBits{static_cast<double>(total) / static_cast<double>(weights.size())}).variance;
}

std::vector<float> random_weights(std::size_t count, float spread, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> weights(count);
  for (float& weight : weights) weight = std::exp(normal(random));
  return weights;
}

TEST(SegmentPlan, IsAsGoodAsTheProvenPlan) {
  const std::vector<CodecSpec> specs{Rotated{}, Affine{}, Affine{.rounding = Rounding::dithered}};
  for (const CodecSpec& spec : specs) {
    const int most = std::holds_alternative<Rotated>(spec) ? 4 : 8;
    for (const std::size_t count : {2, 3, 17, 64, 200}) {
      for (const float spread : {0.1F, 1.0F, 4.0F}) {
        const std::vector<float> weights = random_weights(count, spread, static_cast<unsigned>(count));
        for (const int least : {1, 2}) {
          const auto n = static_cast<std::int64_t>(count);
          for (const std::int64_t total : {least * n, 2 * n, 2 * n + n / 3, 3 * n, most * n - 1, most * n}) {
            const Planned found = planned(spec, weights, total, least);
            ASSERT_EQ(std::accumulate(found.bits.begin(), found.bits.end(), std::int64_t{0}), total);
            ASSERT_GE(*std::ranges::min_element(found.bits), least);
            const double own = variance(spec, weights, found.bits);
            ASSERT_NEAR(own, least_variance(spec, weights, total, least, most), 1e-5 * own) << to_string(spec);
          }
        }
      }
    }
  }
}

TEST(SegmentPlan, TheSummarySaysWhatBecameOfIt) {
  const std::vector<float> weights = random_weights(50, 2.0F, 1);
  const Planned found = planned(Rotated{}, weights, 100);
  EXPECT_EQ(found.summary.fewest_bits, *std::ranges::min_element(found.bits));
  EXPECT_EQ(found.summary.most_bits, *std::ranges::max_element(found.bits));
  EXPECT_EQ(found.summary.mean_bits, 2.0F);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  EXPECT_NEAR(found.summary.error, variance(Rotated{}, weights, found.bits) / sum, 1e-6);
  EXPECT_LT(found.summary.error, 0.6 * expected_error(Rotated{})) << "weights differ, so it is worth while";
  EXPECT_EQ(found.summary.error_at[1], found.summary.error);
  EXPECT_NEAR(found.summary.error_at[0], expected_error(Rotated{.bits = Bits(1)}), 1e-6);
  EXPECT_EQ(found.summary.error_at[2], planned(Rotated{}, weights, 150).summary.error);
  EXPECT_NEAR(found.summary.error_at[3], expected_error(Rotated{.bits = Bits(4)}), 1e-6);
  EXPECT_EQ(found.summary.error_at[7], found.summary.error_at[3]);
  EXPECT_EQ(planned(Rotated{}, weights, 100, 2).summary.error_at[0],
            planned(Rotated{}, weights, 100, 2).summary.error_at[1]);
}

TEST(SegmentPlan, EqualSegmentsGetTheSame) {
  EXPECT_EQ(planned(Rotated{}, std::vector<float>(5, 3.0F), 10).bits, std::vector<int>(5, 2));
  EXPECT_EQ(planned(Rotated{}, std::vector<float>(5, 3.0F), 12).bits, (std::vector<int>{3, 3, 2, 2, 2}));
}

TEST(SegmentPlan, WhatIsNoWeightCountsForNothing) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(planned(Rotated{}, {kNan, 1.0F, -5.0F, 2.0F}, 10).bits, (std::vector<int>{1, 4, 1, 4}));
  EXPECT_EQ(planned(Rotated{}, {kInfinity, 1.0F, 1.0F}, 6).bits, (std::vector<int>{4, 1, 1}));
  const Planned nothing = planned(Rotated{}, {0.0F, 0.0F}, 4);
  EXPECT_EQ(nothing.bits[0] + nothing.bits[1], 4);
  EXPECT_EQ(nothing.summary.error, 0.0F);
}

TEST(SegmentPlan, WeightsAreEnergiesTimesFactors) {
  constexpr std::int64_t kLength = 40 * 256;
  std::vector<float> values(3 * kLength);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const float scales[] = {1.0F, 3.0F, 0.5F};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 100.0F + scales[i / kLength] * normal(random);
  std::vector<float> weights(3);
  const ConstTensorView view(values.data(), DType::f32, Shape::contiguous({3, kLength}));
  weigh_segments(view, {}, bytes_of(weights), Stream());
  EXPECT_NEAR(weights[1] / weights[0], 3.0, 0.3) << "nothing known: the root";
  weigh_segments(view, bytes_of(std::vector<float>(3, 1.0F)), bytes_of(weights), Stream());
  EXPECT_NEAR(weights[1] / weights[0], 9.0, 1.0);
  EXPECT_NEAR(weights[2] / weights[0], 0.25, 0.03);
  const std::vector<float> factors{2.0F, 0.5F, 4.0F};
  std::vector<float> weighted(3);
  weigh_segments(view, bytes_of(factors), bytes_of(weighted), Stream());
  for (std::size_t s = 0; s < 3; ++s) EXPECT_FLOAT_EQ(weighted[s], weights[s] * factors[s]);
}

TEST(SegmentPlan, ErrorsSayWhatIsAllowed) {
  std::vector<float> weights(3, 1.0F);
  std::vector<std::byte> table(3);
  const auto plan = [&](const CodecSpec& spec, Segments segments) {
    plan_segments(spec, bytes_of(std::as_const(weights)), segments, {table.data(), table.size()}, nullptr, Stream());
  };
  expect_error(ErrorCode::invalid_spec, "plan_segments: 'copy' has no bits for each segment (allowed: affine, rotated)",
               [&] { plan(Copy{}, {3, 6}); });
  expect_error(ErrorCode::invalid_segments,
               "plan_segments: 13 bits in total for 3 segments of 'rotated:2' (allowed: 1 to 4 for each)",
               [&] { plan(Rotated{}, {3, 13}); });
  expect_error(ErrorCode::invalid_segments, "plan_segments: 5000 segments (allowed: 1 to 4096)",
               [&] { plan(Rotated{}, {5000, 10000}); });
  expect_error(ErrorCode::wrong_size, "plan_segments: weights has 12 bytes (allowed: 16)",
               [&] { plan(Rotated{}, {4, 8}); });
  const std::vector<float> values(300);
  expect_error(ErrorCode::invalid_segments,
               "weigh_segments: 3 segments of 300 elements (allowed: 1 or more that divide them, of 256)", [&] {
                 weigh_segments({values.data(), DType::f32, Shape::contiguous({3, 100})}, {}, bytes_of(weights),
                                Stream());
               });
}

}  // namespace
}  // namespace actzip
