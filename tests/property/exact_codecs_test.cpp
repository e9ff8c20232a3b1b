// `copy`, `cast` and `mask` restore exactly what they promise, and the traits hold.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "property/sweep.hpp"
#include "support/backends.hpp"
#include "support/generators.hpp"
#include "support/harness.hpp"

namespace actzip::testing {
namespace {

class ExactCodecs : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Cpu, ExactCodecs, ::testing::ValuesIn(cpu_backends()), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, ExactCodecs, ::testing::ValuesIn(cuda_backends()), backend_name);

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST_P(ExactCodecs, copy_keeps_every_bit_of_every_type) {
  Harness harness(device());
  for (const DType dtype : codec_info(Copy{}).encodes) {
    for (const std::int64_t elems : sweep_sizes(Copy{})) {
      SCOPED_TRACE(describe(Copy{}, dtype, elems));
      const std::size_t bytes = static_cast<std::size_t>(elems) * dtype_bytes(dtype);
      const Tensor src = dense(dtype, random_bytes(bytes, 41));  // among them NaNs with a payload
      const Bytes encoded = harness.encode(Copy{}, src);
      ASSERT_TRUE(harness.decode(Copy{}, encoded, dtype, src.shape) == src.memory);
    }
  }
}

TEST_P(ExactCodecs, cast_rounds_to_nearest_even_once) {
  Harness harness(device());
  for (const DType to : {DType::bf16, DType::f16}) {
    for (const DType dtype : kFloats) {
      Values values = gaussian(65537, 42);
      const Values edges{0.0,  -0.0,    1.00390625, 1.01171875, 65519.0, 65520.0, -1e6,
                         3e38, 0x1p-24, 0x1p-25,    0x1.8p-25,  kInf,    -kInf,   kNan};
      std::copy(edges.begin(), edges.end(), values.begin());
      SCOPED_TRACE(describe(Cast{to}, dtype, 65537));
      const Tensor src = dense(dtype, values);
      const Bytes expected = to_bytes(to, to_values(dtype, src.memory));
      const Bytes encoded = harness.encode(Cast{to}, src);
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), encoded.begin()));
      ASSERT_TRUE(harness.decode(Cast{to}, encoded, to, src.shape) == expected);
      const Bytes widened = harness.decode(Cast{to}, encoded, DType::f32, src.shape);
      ASSERT_TRUE(widened == to_bytes(DType::f32, to_values(to, expected)));
    }
  }
}

/// An infinite limit leaves out nothing.
bool is_inside(double x, const Mask& spec) {
  if (std::isnan(x)) return spec.nan == MaskSide::on;
  return !(x <= spec.lo && spec.lo != -kInf) && !(x >= spec.hi && spec.hi != kInf);
}

TEST_P(ExactCodecs, mask_of_floats_is_the_open_interval) {
  Harness harness(device());
  const Values values{-kInf, -2.0, -1.0, -0.5, -0.0, 0.0, 0x1p-20, 0.5, 1.0, 2.0, 5.5, 6.0, 7.0, kInf, kNan, -kNan};
  for (const Mask& spec : {Mask{}, Mask{0.0F, 6.0F}, Mask{-1.0F, 1.0F, -3.0F, 2.5F}, Mask{.nan = MaskSide::off},
                           Mask{.lo = -std::numeric_limits<float>::infinity(), .hi = 1.0F, .nan = MaskSide::off}}) {
    for (const DType dtype : kFloats) {
      for (const std::int64_t elems : sweep_sizes(spec)) {
        SCOPED_TRACE(describe(spec, dtype, elems));
        Values x = gaussian(elems, 43);
        for (std::size_t i = 0; i < x.size(); i += 3) x[i] = values[(i / 3) % values.size()];
        x = stored(dtype, x);
        const Bytes encoded = harness.encode(spec, dense(dtype, x));
        const Bytes bits = harness.decode(spec, encoded, DType::boolean, line(elems));
        for (std::size_t i = 0; i < x.size(); ++i) {
          ASSERT_EQ(bits[i], std::byte{is_inside(x[i], spec)}) << x[i];
        }
        for (const DType out : kFloats) {
          const Values y = to_values(out, harness.decode(spec, encoded, out, line(elems)));
          for (std::size_t i = 0; i < x.size(); ++i) {
            ASSERT_EQ(y[i], static_cast<double>(bits[i] != std::byte{0} ? spec.on : spec.off));
          }
        }
      }
    }
  }
}

TEST_P(ExactCodecs, mask_of_bytes_is_whether_they_are_not_zero) {
  Harness harness(device());
  const Mask spec{0.0F, std::numeric_limits<float>::infinity(), 3.0F, 7.0F};
  for (const DType dtype : {DType::boolean, DType::u8, DType::i8}) {
    for (const std::int64_t elems : sweep_sizes(spec)) {
      SCOPED_TRACE(describe(spec, dtype, elems));
      Bytes x = random_bytes(static_cast<std::size_t>(elems), 44);
      for (std::size_t i = 0; i < x.size(); i += 2) x[i] = std::byte{0};
      const Bytes encoded = harness.encode(spec, dense(dtype, x));
      const Bytes bits = harness.decode(spec, encoded, DType::boolean, line(elems));
      const Bytes bytes = harness.decode(spec, encoded, DType::u8, line(elems));
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(bits[i], std::byte{x[i] != std::byte{0}});
        ASSERT_EQ(bytes[i], bits[i]) << "bytes are decoded as booleans are; `off` and `on` are for floating types";
      }
    }
  }
}

TEST_P(ExactCodecs, traits_hold_for_every_variant) {
  Harness harness(device());
  for (const CodecSpec& spec : all_variants()) {
    const Traits promised = traits(spec);
    if (std::holds_alternative<Index>(spec)) continue;  // its own test; it takes no floating type
    SCOPED_TRACE(describe(spec, DType::f32, 4000));
    Values x = gaussian(4000, 45);
    for (std::size_t i = 0; i < x.size(); i += 3) x[i] = 0.0;
    x = stored(DType::f32, x);
    const Values y = harness.round_trip(spec, dense(DType::f32, x), DType::f32);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (promised.exact && !std::holds_alternative<Mask>(spec)) {
        ASSERT_EQ(y[i], x[i]);
      }
      if (promised.keeps_zeros && x[i] == 0.0) {
        ASSERT_EQ(y[i], 0.0);
      }
      if (promised.keeps_signs) {
        ASSERT_GE(x[i] * y[i], 0.0) << x[i] << " became " << y[i];
      }
    }
  }
}

}  // namespace
}  // namespace actzip::testing
