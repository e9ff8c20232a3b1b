// The error of `affine` stays within the bounds that its arithmetic promises.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "format/geometry.hpp"
#include "property/affine_check.hpp"
#include "property/encoded.hpp"
#include "property/sweep.hpp"
#include "support/backends.hpp"
#include "support/generators.hpp"
#include "support/harness.hpp"

namespace actzip::testing {
namespace {

class AffineBounds : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Cpu, AffineBounds, ::testing::ValuesIn(cpu_backends()), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, AffineBounds, ::testing::ValuesIn(cuda_backends()), backend_name);

std::int64_t codes_offset(const Affine& spec, std::int64_t elems) {
  return format::sections(spec, format::geometry(spec, elems, Segments{}), DType::f32).codes;
}

Values one_outlier(std::int64_t elems, std::uint64_t seed) {
  Values values = gaussian(elems, seed);
  values[values.size() / 2] = 30000.0;
  return values;
}

Values tiny_beside_large(std::int64_t elems, std::uint64_t seed) {
  Values values = gaussian(elems, seed);
  for (std::size_t i = 0; i < values.size(); i += 2) values[i] *= 0x1p-12;
  return values;
}

TEST_P(AffineBounds, every_value_decodes_within_the_error_of_its_rounding) {
  Harness harness(device());
  for (const Affine& spec : variants_of<Affine>()) {
    for (const DType dtype : kFloats) {
      for (const auto make : {gaussian, relu, all_negative, shared_component, one_outlier, tiny_beside_large}) {
        const std::int64_t elems = 3 * spec.group.value + 13;
        SCOPED_TRACE(describe(spec, dtype, elems));
        const Tensor src = dense(dtype, make(elems, 21));
        const Bytes encoded = harness.encode(spec, src);
        const Bytes decoded = harness.decode(spec, encoded, dtype, src.shape);
        ASSERT_TRUE(
            affine_keeps_its_bounds(spec, to_values(dtype, src.memory), encoded, to_values(dtype, decoded), dtype));
      }
    }
  }
}

TEST_P(AffineBounds, stays_within_the_error_over_many_groups) {
  Harness harness(device());
  for (const Affine& spec : variants_of<Affine>()) {
    SCOPED_TRACE(describe(spec, DType::f32, 65537));
    const Tensor src = dense(DType::f32, gaussian(65537, 22));
    const Bytes encoded = harness.encode(spec, src);
    const Bytes decoded = harness.decode(spec, encoded, DType::f32, src.shape);
    ASSERT_TRUE(affine_keeps_its_bounds(spec, to_values(DType::f32, src.memory), encoded,
                                        to_values(DType::f32, decoded), DType::f32));
  }
}

/// 0, 1, ..., 2^B - 1 over and over: every value is a level.
TEST_P(AffineBounds, every_code_is_reached_and_a_value_on_a_level_stays_there) {
  Harness harness(device());
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    for (int bits = 1; bits <= 8; ++bits) {
      const Affine spec{Bits(bits), rounding, GroupSize(256), StatsType::f32};
      const std::int64_t levels = std::int64_t{1} << bits;
      Values values;
      for (std::int64_t i = 0; i < 512; ++i) values.push_back(static_cast<double>(i % levels));
      SCOPED_TRACE(describe(spec, DType::f32, 512));
      const Bytes encoded = harness.encode(spec, dense(DType::f32, values));
      std::set<std::uint32_t> reached;
      for (std::int64_t i = 0; i < 512; ++i) {
        const std::uint32_t code = read_code(encoded, codes_offset(spec, 512), bits, i);
        ASSERT_EQ(code, static_cast<std::uint32_t>(i % levels)) << "element " << i;
        reached.insert(code);
      }
      EXPECT_EQ(reached.size(), static_cast<std::size_t>(levels));
      const Values decoded = to_values(DType::f32, harness.decode(spec, encoded, DType::f32, line(512)));
      for (std::size_t i = 0; i < 512; ++i) ASSERT_NEAR(decoded[i], values[i], 0x1p-14);
    }
  }
}

TEST_P(AffineBounds, least_and_greatest_code_occur_in_every_variant) {
  Harness harness(device());
  for (const Affine& spec : variants_of<Affine>()) {
    // The greatest value may miss the last level by what the step was rounded up: many draws, and noise, reach it.
    if (spec.rounding == Rounding::nearest && spec.stats == StatsType::bf16 && spec.bits.value > 6) continue;
    const std::int64_t elems = 65537;
    SCOPED_TRACE(describe(spec, DType::f32, elems));
    const Bytes encoded = harness.encode(spec, dense(DType::f32, gaussian(elems, 23)));
    const auto top = static_cast<std::uint32_t>((1 << spec.bits.value) - 1);
    bool least_seen = false;
    bool greatest_seen = false;
    for (std::int64_t i = 0; i < elems; ++i) {
      const std::uint32_t code = read_code(encoded, codes_offset(spec, elems), spec.bits.value, i);
      least_seen |= code == 0;
      greatest_seen |= code == top;
    }
    EXPECT_TRUE(least_seen && greatest_seen);
  }
}

TEST_P(AffineBounds, nearest_with_f32_statistics_codes_its_own_output_alike) {
  Harness harness(device());
  for (int bits = 1; bits <= 8; ++bits) {
    const Affine spec{Bits(bits), Rounding::nearest, GroupSize(128), StatsType::f32};
    const std::int64_t elems = 128 * 20;
    SCOPED_TRACE(describe(spec, DType::f32, elems));
    const Bytes once = harness.encode(spec, dense(DType::f32, gaussian(elems, 24)));
    const Bytes decoded = harness.decode(spec, once, DType::f32, line(elems));
    const Bytes twice = harness.encode(spec, dense(DType::f32, decoded));
    const std::int64_t codes = codes_offset(spec, elems);
    EXPECT_TRUE(std::equal(once.begin() + codes, once.end(), twice.begin() + codes, twice.end()));
    const Values first = to_values(DType::f32, decoded);
    const Values second = to_values(DType::f32, harness.decode(spec, twice, DType::f32, line(elems)));
    for (std::size_t i = 0; i < first.size(); ++i) ASSERT_NEAR(second[i], first[i], 16 * 0x1p-23);
  }
}

}  // namespace
}  // namespace actzip::testing
