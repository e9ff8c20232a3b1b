// `rotated` preserves inner products, means and zeros.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "property/encoded.hpp"
#include "property/sweep.hpp"
#include "support/backends.hpp"
#include "support/generators.hpp"
#include "support/harness.hpp"

namespace actzip::testing {
namespace {

class RotatedBounds : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Cpu, RotatedBounds, ::testing::ValuesIn(cpu_backends()), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, RotatedBounds, ::testing::ValuesIn(cuda_backends()), backend_name);

/// The scale is chosen so that <x^ - mean, x - mean> = |x - mean|^2 in every group, ragged ones included.
TEST_P(RotatedBounds, decoded_deviation_has_the_inner_product_of_the_deviation_with_itself) {
  Harness harness(device());
  for (const int bits : {1, 2, 3, 4}) {
    for (const int group : {128, 256}) {
      for (const DType dtype : kFloats) {
        const Rotated spec{Bits(bits), GroupSize(group), StatsType::f32, false};
        const std::int64_t elems = 20 * group + 33;
        SCOPED_TRACE(describe(spec, dtype, elems));
        const Tensor src = dense(dtype, shared_component(elems, 31));
        const Values x = to_values(dtype, src.memory);
        const Bytes encoded = harness.encode(spec, src);
        const Values y = to_values(DType::f32, harness.decode(spec, encoded, DType::f32, src.shape));
        for (std::int64_t g = 0; g * group < elems; ++g) {
          const double mean = read_stats(spec.stats, encoded, g).first;
          double own = 0.0;
          double mixed = 0.0;
          for (std::int64_t i = g * group; i < std::min(elems, (g + 1) * group); ++i) {
            const auto k = static_cast<std::size_t>(i);
            own += (x[k] - mean) * (x[k] - mean);
            mixed += (y[k] - mean) * (x[k] - mean);
          }
          // Transforms may be in 16-bit arithmetic: the tolerance of section 7. CPUs transform f32 in f32.
          const bool precise = dtype == DType::f32 && device().kind == DeviceKind::cpu;
          ASSERT_NEAR(mixed / own, 1.0, precise ? 0x1p-14 : 0x1p-6) << "group " << g;
        }
      }
    }
  }
}

TEST_P(RotatedBounds, stored_mean_is_the_mean_of_the_group) {
  Harness harness(device());
  for (const StatsType stats : {StatsType::bf16, StatsType::f32}) {
    for (const DType dtype : kFloats) {
      const Rotated spec{Bits(2), GroupSize(256), stats, false};
      const std::int64_t elems = 3 * 256 + 41;
      SCOPED_TRACE(describe(spec, dtype, elems));
      const Tensor src = dense(dtype, all_negative(elems, 32));
      const Values x = to_values(dtype, src.memory);
      const Bytes encoded = harness.encode(spec, src);
      for (std::int64_t g = 0; g < 4; ++g) {
        const std::int64_t last = std::min(elems, (g + 1) * 256);
        double mean = 0.0;
        for (std::int64_t i = g * 256; i < last; ++i) mean += x[static_cast<std::size_t>(i)];
        mean /= static_cast<double>(last - g * 256);
        // 16-bit elements have a mean of 16 bits too, whatever it is stored in.
        const double unit = stats == StatsType::bf16 || dtype != DType::f32 ? 0x1.02p-8 : 0x1p-20;
        EXPECT_NEAR(read_stats(stats, encoded, g).first, mean, unit * std::abs(mean)) << "group " << g;
      }
    }
  }
}

TEST_P(RotatedBounds, mask_plane_keeps_zeros_exactly_and_decodes_alone) {
  Harness harness(device());
  for (const Rotated& spec : variants_of<Rotated>()) {
    if (!spec.mask_plane) continue;
    for (const DType dtype : kFloats) {
      for (const std::int64_t elems : sweep_sizes(spec)) {
        SCOPED_TRACE(describe(spec, dtype, elems));
        const Tensor src = dense(dtype, relu(elems, 33));
        const Values x = to_values(dtype, src.memory);
        const Bytes encoded = harness.encode(spec, src);
        const Values y = to_values(dtype, harness.decode(spec, encoded, dtype, src.shape));
        const Bytes mask = harness.decode(spec, encoded, DType::boolean, src.shape);
        for (std::size_t i = 0; i < x.size(); ++i) {
          ASSERT_EQ(mask[i], std::byte{x[i] != 0.0}) << "element " << i;
          if (x[i] == 0.0) {
            ASSERT_TRUE(y[i] == 0.0 && !std::signbit(y[i])) << "element " << i << ": " << y[i];
          }
        }
      }
    }
  }
}

TEST_P(RotatedBounds, mask_plane_changes_nothing_but_the_zeros) {
  Harness harness(device());
  for (const int bits : {1, 2, 3, 4}) {
    const Rotated plain{Bits(bits)};
    const Rotated masked{Bits(bits), GroupSize(256), StatsType::bf16, true};
    SCOPED_TRACE(describe(plain, DType::f32, 5000));
    const Tensor src = dense(DType::f32, relu(5000, 34));
    const Values x = to_values(DType::f32, src.memory);
    const Values y = harness.round_trip(plain, src, DType::f32);
    const Values z = harness.round_trip(masked, src, DType::f32);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i] != 0.0) {
        ASSERT_EQ(y[i], z[i]) << "element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace actzip::testing
