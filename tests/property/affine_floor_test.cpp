// The floor of `affine`: values below it become the floor, and nothing else changes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "property/affine_check.hpp"
#include "property/encoded.hpp"
#include "property/sweep.hpp"
#include "support/backends.hpp"
#include "support/generators.hpp"
#include "support/harness.hpp"

namespace actzip::testing {
namespace {

class AffineFloor : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Cpu, AffineFloor, ::testing::ValuesIn(cpu_backends()), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, AffineFloor, ::testing::ValuesIn(cuda_backends()), backend_name);

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr std::int64_t kGroup = 256;
constexpr Affine kLogarithms{Bits(8), Rounding::nearest, GroupSize(kGroup), StatsType::f32, -32.0F};

/// Logarithms of probabilities, many of them masked, and all of the second group.
Values log_probabilities(std::int64_t elems, std::int64_t group) {
  Values x = gaussian(elems, 81);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = 6.0 * x[i] - 20.0;
    if (i % 5 == 2) x[i] = -1e9;
    if (i % 7 == 3 || static_cast<std::int64_t>(i) / group == 1) x[i] = -kInf;
  }
  return x;
}

TEST_P(AffineFloor, gives_the_bytes_of_elements_that_were_raised_to_it_before) {
  Harness harness(device());
  for (int bits = 1; bits <= 8; ++bits) {
    for (const int group : {32, 256, 1024}) {
      for (const StatsType stats : {StatsType::bf16, StatsType::f32}) {
        for (const float floor : {-32.0F, -16.5F, 0.0F, 3.0F}) {
          const Affine with{Bits(bits), Rounding::nearest, GroupSize(group), stats, floor};
          const Affine without{Bits(bits), Rounding::nearest, GroupSize(group), stats};
          const Values x = log_probabilities(3 * group + 13, group);
          Values raised = x;
          for (double& v : raised) v = std::max(v, static_cast<double>(floor));
          for (const DType dtype : kFloats) {
            SCOPED_TRACE(describe(with, dtype, 3 * group + 13));
            ASSERT_TRUE(harness.encode(with, dense(dtype, x)) == harness.encode(without, dense(dtype, raised)));
          }
        }
      }
    }
  }
}

/// A floor that is no bf16 number lies between min and the first level.
TEST_P(AffineFloor, keeps_values_within_half_a_step_and_gives_the_floor_for_those_below) {
  Harness harness(device());
  for (const StatsType stats : {StatsType::bf16, StatsType::f32}) {
    for (const float floor : {-32.0F, -18.3F}) {
      const Affine spec{Bits(8), Rounding::nearest, GroupSize(kGroup), stats, floor};
      for (const DType dtype : kFloats) {
        SCOPED_TRACE(describe(spec, dtype, 5 * kGroup + 13));
        const Tensor src = dense(dtype, log_probabilities(5 * kGroup + 13, kGroup));
        const Bytes encoded = harness.encode(spec, src);
        const Values y = to_values(DType::f32, harness.decode(spec, encoded, DType::f32, src.shape));
        ASSERT_TRUE(affine_keeps_its_bounds(spec, to_values(dtype, src.memory), encoded, y, DType::f32));
      }
    }
  }
}

TEST_P(AffineFloor, is_exact_at_both_ends_of_a_group_with_f32_statistics) {
  Harness harness(device());
  const std::int64_t elems = 5 * kGroup;
  const Tensor src = dense(DType::f32, log_probabilities(elems, kGroup));
  const Values x = to_values(DType::f32, src.memory);
  const Values y = harness.round_trip(kLogarithms, src, DType::f32);
  for (std::size_t first = 0; first < x.size(); first += kGroup) {
    const auto group = x.begin() + static_cast<std::ptrdiff_t>(first);
    const auto top = first + static_cast<std::size_t>(std::max_element(group, group + kGroup) - group);
    const double greatest = std::max(x[top], -32.0);
    ASSERT_NEAR(y[top], greatest, 1e-6 * (greatest + 32.0));
    for (std::size_t i = first; i < first + kGroup; ++i) {
      if (x[i] <= -32.0) {
        ASSERT_EQ(y[i], -32.0) << "element " << i << " was " << x[i];
      }
    }
  }
}

TEST_P(AffineFloor, leaves_nan_and_infinity_visible) {
  Harness harness(device());
  const std::int64_t elems = 3 * kGroup + 17;
  for (const DType dtype : kFloats) {
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), kInf}) {
      Values x = log_probabilities(elems, kGroup);
      x[kGroup + 5] = bad;
      SCOPED_TRACE(describe(kLogarithms, dtype, elems));
      const Values y = harness.round_trip(kLogarithms, dense(dtype, x), dtype);
      for (std::int64_t i = 0; i < elems; ++i) {
        ASSERT_EQ(std::isnan(y[static_cast<std::size_t>(i)]), i / kGroup == 1) << bad << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace actzip::testing
