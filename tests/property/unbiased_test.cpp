// Codecs with the trait `unbiased` are unbiased for each element: the mean over 4,096 seeds is the original value.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "property/many_seeds.hpp"
#include "property/sweep.hpp"
#include "support/backends.hpp"
#include "support/generators.hpp"

namespace actzip::testing {
namespace {

class Unbiased : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Cpu, Unbiased, ::testing::ValuesIn(cpu_backends()), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Unbiased, ::testing::ValuesIn(cuda_backends()), backend_name);

constexpr std::int64_t kSeeds = 4096;

/// What a mean may miss besides chance: 8-bit noise is fine to 1/512 of a step, and numbers are rounded to binary32.
double systematic(const CodecSpec& spec, const Values& x) {
  const auto [lo, hi] = std::minmax_element(x.begin(), x.end());
  const double rounding = 0x1p-20 * std::max(std::abs(*lo), std::abs(*hi));
  const auto* affine = std::get_if<Affine>(&spec);
  const auto* dual = std::get_if<Dual>(&spec);
  if (affine == nullptr && dual == nullptr) return rounding;
  const double range = (*hi - *lo) * (dual == nullptr ? 1 : 2);  // averages that differ may add theirs
  const double step = range / ((1 << code_bits(spec, DType::f32)) - 1) * (1.0 + 0x1p-6) + 0x1p-7 * std::abs(*lo);
  return rounding + step / 512;
}

::testing::AssertionResult mean_is_the_value(const CodecSpec& spec, const Values& x, const Moments& got, double extra) {
  const double slack = systematic(spec, x) + extra;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double standard_error = std::sqrt(got.variance[i] / static_cast<double>(kSeeds));
    if (std::abs(got.mean[i] - x[i]) <= 5.0 * standard_error + slack) continue;
    return ::testing::AssertionFailure() << "element " << i << ": " << x[i] << " has mean " << got.mean[i]
                                         << " with a standard error of " << standard_error;
  }
  return ::testing::AssertionSuccess();
}

void check(Device device, const CodecSpec& spec, DType dtype, DType out) {
  for (const NamedData& data : training_data()) {
    SCOPED_TRACE(describe(spec, dtype, group_of(spec)) + " to " + std::string(to_string(out)) + ", " +
                 std::string(data.name));
    const Tensor src = dense(dtype, data.make(group_of(spec), 111));
    const Values x = to_values(dtype, src.memory);
    const Moments got = moments_over_seeds(device, spec, src, out, kSeeds);
    // Rounding to a 16-bit output is to nearest: a bias of up to half a place of the greatest value. Transforms may be
    // in 16-bit arithmetic (format.md, section 7), whose rounding leaves less than a quarter of that; CPUs transform
    // f32 in f32.
    double greatest = 0.0;
    for (const double v : x) greatest = std::max(greatest, std::abs(v));
    const bool precise =
        dtype == DType::f32 && (device.kind == DeviceKind::cpu || !std::holds_alternative<Rotated>(spec));
    const double extra = out != DType::f32 ? roundoff(out) : precise ? 0.0 : roundoff(DType::bf16) / 4;
    EXPECT_TRUE(mean_is_the_value(spec, x, got, extra * greatest));
  }
}

std::vector<CodecSpec> unbiased_variants() {
  std::vector<CodecSpec> result;
  for (const CodecSpec& spec : all_variants()) {
    const auto encodes = codec_info(spec).encodes;
    const bool floating = std::find(encodes.begin(), encodes.end(), DType::f32) != encodes.end();
    if (traits(spec).unbiased && !traits(spec).exact && floating) result.push_back(spec);
  }
  return result;
}

TEST_P(Unbiased, the_mean_over_seeds_is_the_value_for_every_variant) {
  for (const CodecSpec& spec : unbiased_variants()) check(device(), spec, DType::f32, DType::f32);
}

TEST_P(Unbiased, the_mean_over_seeds_is_the_value_for_16_bit_elements) {
  for (const CodecSpec& spec : unbiased_variants()) {
    const bool narrow_widths = std::visit(
        [](const auto& codec) {
          if constexpr (requires { codec.bits; }) return codec.bits.value == 1 || codec.bits.value == 2;
          return false;
        },
        spec);
    if (!narrow_widths || group_of(spec) != 256) continue;
    check(device(), spec, DType::bf16, DType::f32);
    check(device(), spec, DType::bf16, DType::bf16);
    check(device(), spec, DType::f16, DType::f16);
  }
}

TEST_P(Unbiased, ragged_groups_are_unbiased_too) {
  for (const CodecSpec& spec : unbiased_variants()) {
    SCOPED_TRACE(to_string(spec));
    const Values x = stored(DType::f32, shared_component(37, 112));
    const Moments got = moments_over_seeds(device(), spec, dense(DType::f32, x), DType::f32, kSeeds);
    EXPECT_TRUE(mean_is_the_value(spec, x, got, 0.0));
  }
}

/// The check must be able to fail: rounding to nearest is biased, and is found to be.
TEST_P(Unbiased, nearest_rounding_does_not_pass_this_test) {
  const Affine spec{Bits(2), Rounding::nearest};
  const Values x = stored(DType::f32, gaussian(256, 113));
  const Moments got = moments_over_seeds(device(), spec, dense(DType::f32, x), DType::f32, kSeeds);
  EXPECT_FALSE(mean_is_the_value(spec, x, got, 0.0));
}

}  // namespace
}  // namespace actzip::testing
