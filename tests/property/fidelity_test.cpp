// Compares the relative squared error of each codec with the promised number.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "property/sweep.hpp"
#include "support/backends.hpp"
#include "support/generators.hpp"
#include "support/harness.hpp"

namespace actzip::testing {
namespace {

class Fidelity : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Cpu, Fidelity, ::testing::ValuesIn(cpu_backends()), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Fidelity, ::testing::ValuesIn(cuda_backends()), backend_name);

constexpr std::int64_t kElems = std::int64_t{1} << 20;  // 4,096 groups: the error of 1-bit `affine` is known to 1 %

const Values& gaussian_data() {
  static const Values values = gaussian(kElems, 101);
  return values;
}

double relative_error(Harness& harness, const CodecSpec& spec, const Values& data, DType dtype) {
  const Tensor src = dense(dtype, data);
  const Values x = to_values(dtype, src.memory);
  const Values y = harness.round_trip(spec, src, DType::f32);
  double error = 0.0;
  double power = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += (y[i] - x[i]) * (y[i] - x[i]);
    power += x[i] * x[i];
  }
  return error / power;
}

TEST_P(Fidelity, gaussian_data_has_the_promised_error) {
  struct Promise {
    std::string_view spec;
    double error;
  };
  Harness harness(device());
  for (const auto& [text, error] :
       {Promise{"rotated:1", 0.571}, Promise{"rotated:2", 0.1331}, Promise{"rotated:3", 0.0358},
        Promise{"rotated:4", 0.0096}, Promise{"affine:2:stochastic", 0.596}, Promise{"affine:4:stochastic", 0.0238},
        Promise{"affine:2:dithered", 0.299}, Promise{"affine:4:dithered", 0.0120}}) {
    for (const DType dtype : kFloats) {
      SCOPED_TRACE(std::string(text) + " " + std::string(to_string(dtype)));
      EXPECT_NEAR(relative_error(harness, parse_spec(text), gaussian_data(), dtype), error, 0.03 * error);
    }
  }
}

TEST_P(Fidelity, the_error_table_of_every_variant_is_right) {
  Harness harness(device());
  for (const CodecSpec& spec : registry_variants()) {
    if (std::holds_alternative<Index>(spec) || std::holds_alternative<Mask>(spec)) {
      EXPECT_EQ(expected_error(spec), 0.0) << to_string(spec);
      continue;
    }
    ASSERT_EQ(group_of(spec), 256) << "the table is for groups of 256";
    const double error = relative_error(harness, spec, gaussian_data(), DType::f32);
    EXPECT_NEAR(error, expected_error(spec), 0.03 * expected_error(spec)) << to_string(spec);
  }
}

TEST_P(Fidelity, relu_data_with_a_mask_plane_loses_less_than_half_as_much) {
  Harness harness(device());
  const Values data = relu(kElems, 102);
  for (const DType dtype : kFloats) {
    EXPECT_LE(relative_error(harness, parse_spec("rotated:2:mask"), data, dtype), 0.046) << to_string(dtype);
  }
}

}  // namespace
}  // namespace actzip::testing
