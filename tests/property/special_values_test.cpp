// Zeros, constants, subnormal and huge numbers, NaN and infinities: sections 5 to 7 of format.md.
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

class SpecialValues : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Cpu, SpecialValues, ::testing::ValuesIn(cpu_backends()), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, SpecialValues, ::testing::ValuesIn(cuda_backends()), backend_name);

/// The codecs that compute: those with groups or maps.
std::vector<CodecSpec> grouped_variants() {
  std::vector<CodecSpec> result;
  for (const CodecSpec& spec : all_variants()) {
    if (std::holds_alternative<Affine>(spec) || uses_noise(spec)) result.push_back(spec);
  }
  return result;
}

bool has_mask(const CodecSpec& spec) {
  const auto* rotated = std::get_if<Rotated>(&spec);
  return rotated != nullptr && rotated->mask_plane;
}

bool all_zero(const Bytes& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

TEST_P(SpecialValues, zeros_of_either_sign_are_all_zero_bytes_and_decode_to_plus_zero) {
  Harness harness(device());
  for (const CodecSpec& spec : grouped_variants()) {
    for (const DType dtype : kFloats) {
      const std::int64_t elems = 2 * group_of(spec) + 9;
      SCOPED_TRACE(describe(spec, dtype, elems));
      for (const Values& zeros : {constant(elems, 0.0), constant(elems, -0.0), signed_zeros(elems)}) {
        const Bytes encoded = harness.encode(spec, dense(dtype, zeros));
        ASSERT_TRUE(all_zero(encoded));
        ASSERT_TRUE(all_zero(harness.decode(spec, encoded, dtype, line(elems))));
      }
    }
  }
}

TEST_P(SpecialValues, constants_that_the_statistics_hold_come_back_exactly) {
  Harness harness(device());
  for (const CodecSpec& spec : grouped_variants()) {
    for (const DType dtype : kFloats) {
      for (const double value : {1.5, -3.25, 0x1p-14, -65024.0}) {
        const std::int64_t elems = 2 * group_of(spec) + 9;
        SCOPED_TRACE(describe(spec, dtype, elems));
        const Values kept = constant(elems, std::max(value, floor_of(spec)));
        ASSERT_EQ(harness.round_trip(spec, dense(dtype, constant(elems, value)), dtype), kept);
      }
    }
  }
}

TEST_P(SpecialValues, affine_keeps_its_bounds_on_subnormal_numbers) {
  Harness harness(device());
  for (const Affine& spec : variants_of<Affine>()) {
    for (const DType dtype : kFloats) {
      const std::int64_t elems = 2 * spec.group.value + 9;
      SCOPED_TRACE(describe(spec, dtype, elems));
      const Values x = denormals(dtype, elems, 51);
      const Bytes encoded = harness.encode(spec, dense(dtype, x));
      const Values y = to_values(dtype, harness.decode(spec, encoded, dtype, line(elems)));
      ASSERT_TRUE(affine_keeps_its_bounds(spec, x, encoded, y, dtype));
    }
  }
}

TEST_P(SpecialValues, rotated_gives_the_mean_of_what_hardly_deviates_from_it) {
  Harness harness(device());
  for (const Rotated& spec : variants_of<Rotated>()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::int64_t elems = 2 * spec.group.value;
      SCOPED_TRACE(describe(spec, dtype, elems));
      const Values x = denormals(dtype, elems, 52);
      const Values y = harness.round_trip(spec, dense(dtype, x), dtype);
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_LE(std::abs(y[i]), 64 * least(dtype));
        const std::size_t first = i - i % static_cast<std::size_t>(spec.group.value);
        if (!spec.mask_plane) {
          ASSERT_EQ(y[i], y[first]);
        }
      }
    }
  }
}

TEST_P(SpecialValues, largest_numbers_of_f16_stay_finite) {
  Harness harness(device());
  for (const CodecSpec& spec : grouped_variants()) {
    const std::int64_t elems = 2 * group_of(spec) + 9;
    SCOPED_TRACE(describe(spec, DType::f16, elems));
    Values x = constant(elems, 65504.0);
    for (std::size_t i = 0; i < x.size(); i += 2) x[i] = -65504.0;
    const Bytes encoded = harness.encode(spec, dense(DType::f16, x));
    const Values y = to_values(DType::f16, harness.decode(spec, encoded, DType::f16, line(elems)));
    for (const double v : y) ASSERT_TRUE(std::isfinite(v));
    const Values wide = to_values(DType::f32, harness.decode(spec, encoded, DType::f32, line(elems)));
    if (const auto* affine = std::get_if<Affine>(&spec)) {
      ASSERT_TRUE(affine_keeps_its_bounds(*affine, x, encoded, wide, DType::f32));
    }
  }
}

TEST_P(SpecialValues, affine_represents_up_to_2_to_the_126_and_makes_nan_of_more) {
  Harness harness(device());
  for (const Affine& spec : variants_of<Affine>()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::int64_t elems = spec.group.value + 9;
      SCOPED_TRACE(describe(spec, dtype, elems));
      Values x = constant(elems, 0x1p126);
      for (std::size_t i = 0; i < x.size(); i += 3) x[i] = -0x1p126;
      const Bytes encoded = harness.encode(spec, dense(dtype, x));
      const Values y = to_values(DType::f32, harness.decode(spec, encoded, DType::f32, line(elems)));
      ASSERT_TRUE(affine_keeps_its_bounds(spec, x, encoded, y, DType::f32));
      for (const double beyond : {0x1.02p126, -0x1.02p126, largest(dtype), -largest(dtype)}) {
        if (beyond < floor_of(spec)) continue;
        x[1] = beyond;
        const Values z = harness.round_trip(spec, dense(dtype, x), dtype);
        const auto group = static_cast<std::size_t>(spec.group.value);
        for (std::size_t i = 0; i < z.size(); ++i) ASSERT_EQ(std::isnan(z[i]), i < group) << beyond << ", " << i;
      }
    }
  }
}

/// Channels that vary fastest: neighbours belong to different maps.
std::int64_t channels_of(const CodecSpec& spec) {
  const auto* dual = std::get_if<Dual>(&spec);
  return dual == nullptr ? 1 : dual->last;
}

/// One bad value in the second of four groups, or samples: that group, or map, decodes to NaN, the others as if nothing
/// had happened.
TEST_P(SpecialValues, nan_and_infinity_spoil_their_group_and_no_other) {
  Harness harness(device());
  const double inf = std::numeric_limits<double>::infinity();
  for (const CodecSpec& spec : grouped_variants()) {
    const std::int64_t group = group_of(spec);
    const std::int64_t elems = 3 * group + 17;
    for (const DType dtype : kFloats) {
      SCOPED_TRACE(describe(spec, dtype, elems));
      Values x = relu(elems, 53);
      const Values clean = harness.round_trip(spec, dense(dtype, x), dtype);
      for (const double bad : {std::numeric_limits<double>::quiet_NaN(), inf, -inf}) {
        if (bad < floor_of(spec)) continue;
        const auto where = static_cast<std::size_t>(group + 5);
        x[where] = bad;
        const Values y = harness.round_trip(spec, dense(dtype, x), dtype);
        for (std::size_t i = 0; i < x.size(); ++i) {
          const std::int64_t channels = channels_of(spec);
          const bool spoilt = static_cast<std::int64_t>(i) / group == 1 &&
                              static_cast<std::int64_t>(i) % channels == (group + 5) % channels;
          if (!spoilt || (has_mask(spec) && x[i] == 0.0)) {
            ASSERT_EQ(y[i], clean[i]) << bad << " changed element " << i;
          } else {
            ASSERT_TRUE(std::isnan(y[i])) << bad << " was not seen at element " << i << ": " << y[i];
          }
        }
      }
    }
  }
}

TEST_P(SpecialValues, a_spoilt_group_has_one_way_to_be_written) {
  Harness harness(device());
  const double inf = std::numeric_limits<double>::infinity();
  for (const CodecSpec& spec : grouped_variants()) {
    if (has_mask(spec) || std::holds_alternative<Dual>(spec)) continue;  // which keep what is bad beside it
    const std::int64_t elems = group_of(spec);
    SCOPED_TRACE(describe(spec, DType::f32, elems));
    Values x = gaussian(elems, 54);
    x[3] = inf;
    const Bytes expected = harness.encode(spec, dense(DType::f32, x));
    for (const double bad : {-inf, std::numeric_limits<double>::quiet_NaN()}) {
      x[5] = bad;
      ASSERT_TRUE(harness.encode(spec, dense(DType::f32, x)) == expected);
    }
    const StatsType type = std::visit(
        [](const auto& codec) {
          if constexpr (requires { codec.stats; }) return codec.stats;
          return StatsType::bf16;
        },
        spec);
    Bytes nan_then_zeros(expected.size());
    const Bytes nan =
        to_bytes(type == StatsType::bf16 ? DType::bf16 : DType::f32, Values{std::numeric_limits<double>::quiet_NaN()});
    std::copy(nan.begin(), nan.end(), nan_then_zeros.begin());
    EXPECT_TRUE(expected == nan_then_zeros);
  }
}

TEST_P(SpecialValues, rotated_makes_nan_of_what_its_sums_cannot_hold) {
  Harness harness(device());
  for (const Rotated& spec : variants_of<Rotated>()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::int64_t elems = spec.group.value;
      SCOPED_TRACE(describe(spec, dtype, elems));
      for (const double huge : {0x1p62, largest(dtype)}) {
        Values x = gaussian(elems, 55);
        for (std::size_t i = 0; i < x.size(); i += 2) x[i] = i % 4 == 0 ? huge : -huge;
        for (const double v : harness.round_trip(spec, dense(dtype, x), dtype)) ASSERT_TRUE(std::isnan(v));
      }
      const Values x = gaussian(elems, 56);
      Values large = x;
      for (double& v : large) v *= 0x1p40;
      for (const double v : harness.round_trip(spec, dense(dtype, large), dtype)) ASSERT_TRUE(std::isfinite(v));
    }
  }
}

}  // namespace
}  // namespace actzip::testing
