// What training needs of a codec: a weight's gradient, a sum over 2,048 rows, is right on average, and the errors of
// the rows do not accumulate. They would if groups shared their signs or their noise, because the rows have a common
// component and the gradients a common mean.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "property/many_seeds.hpp"
#include "property/sweep.hpp"
#include "support/backends.hpp"
#include "support/generators.hpp"

namespace actzip::testing {
namespace {

class WeightGradient : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Cpu, WeightGradient, ::testing::Values(cpu_backends().back()), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, WeightGradient, ::testing::ValuesIn(cuda_backends()), backend_name);

constexpr std::size_t kRows = 2048;
constexpr std::size_t kWidth = 256;
constexpr std::int64_t kDraws = 128;

/// Rows of x: a component common to all of them, and a tenth of noise.
Values rows_with_a_common_component() {
  const Values common = gaussian(kWidth, 121);
  Values x = gaussian(kRows * kWidth, 122);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = common[i % kWidth] + 0.1 * x[i];
  return x;
}

/// The upstream gradient of one output: a common mean and noise.
Values upstream() {
  Values g = gaussian(kRows, 123);
  for (double& v : g) v = 1.0 + 0.5 * v;
  return g;
}

Values weight_gradient(const Values& g, const Values& x) {
  Values result(kWidth);
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t j = 0; j < kWidth; ++j) result[j] += g[r] * x[r * kWidth + j];
  }
  return result;
}

struct Outcome {
  double worst_bias;      ///< of an element of the gradient, in standard errors
  double variance_ratio;  ///< variance of the gradient / the one that independent errors of the rows would give
};

Outcome measure(Device device, const CodecSpec& spec, const Values& g, const Tensor& src) {
  const Values x = to_values(src.dtype, src.memory);
  const Values exact = weight_gradient(g, x);
  MomentSums element_sums;
  MomentSums gradient_sums;
  const auto take = [&](const Values& draw) {
    element_sums.add(draw);
    gradient_sums.add(weight_gradient(g, draw));
  };
  decode_many(device, spec, src, DType::f32, kDraws, take, {kRows});
  const Moments elements = element_sums.result();
  Values row_variance(kWidth);  // sum over the rows of g^2 * variance of the row's element
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double factor = g[i / kWidth];
    row_variance[i % kWidth] += factor * factor * elements.variance[i];
  }
  const Moments got = gradient_sums.result();
  Outcome outcome{0.0, 0.0};
  double together = 0.0;
  double independent = 0.0;
  for (std::size_t j = 0; j < kWidth; ++j) {
    // With independent rows the sum is close to normal, so its true standard error is the better yardstick.
    const double standard_error = std::sqrt(row_variance[j] / static_cast<double>(kDraws));
    outcome.worst_bias = std::max(outcome.worst_bias, std::abs(got.mean[j] - exact[j]) / standard_error);
    together += got.variance[j];
    independent += row_variance[j];
  }
  outcome.variance_ratio = together / independent;
  return outcome;
}

TEST_P(WeightGradient, over_2048_rows_is_unbiased_with_the_variance_of_independent_rows) {
  const Values g = upstream();
  const Tensor src = dense(DType::f32, rows_with_a_common_component());
  for (const CodecSpec& spec : registry_variants()) {
    if (!traits(spec).unbiased || traits(spec).exact) continue;
    // In 1 bit the element that is the least of every row lies within 1/512 of a step from the minimum, where noise of
    // 8 bits leaves a bias (format.md, section 6): 8.8 standard errors for one of 256 columns.
    if (spec == CodecSpec(Dual{Bits(1)})) continue;
    const Outcome outcome = measure(device(), spec, g, src);
    EXPECT_LE(outcome.worst_bias, 5.0) << to_string(spec);
    EXPECT_NEAR(outcome.variance_ratio, 1.0, 0.15) << to_string(spec);
  }
}

}  // namespace
}  // namespace actzip::testing
