// The form of a call does not change its results: output types, seeds by address, threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "actzip/codec.hpp"
#include "property/sweep.hpp"
#include "support/backends.hpp"
#include "support/generators.hpp"
#include "support/harness.hpp"
#include "support/thread_executor.hpp"

namespace actzip::testing {
namespace {

class Calls : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Cpu, Calls, ::testing::ValuesIn(cpu_backends()), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Calls, ::testing::ValuesIn(cuda_backends()), backend_name);

class CpuCalls : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Cpu, CpuCalls, ::testing::ValuesIn(cpu_backends()), backend_name);

/// Values narrowed as decoding does: a finite number too large becomes the largest one.
Values narrowed(DType dtype, Values values) {
  for (double& v : values) {
    if (std::isfinite(v)) v = std::clamp(v, -largest(dtype), largest(dtype));
  }
  return stored(dtype, values);
}

/// A block of elements over and over: drawing as many numbers would take longer than coding them.
Tensor repeated(DType dtype, const Shape& shape, const Bytes& block) {
  Tensor tensor{dtype, shape, Bytes(static_cast<std::size_t>(extent(shape)) * dtype_bytes(dtype))};
  for (std::size_t i = 0; i < tensor.memory.size(); ++i) tensor.memory[i] = block[i % block.size()];
  return tensor;
}

TEST_P(Calls, another_output_type_gives_the_same_values_rounded_once) {
  Harness harness(device());
  for (const CodecSpec& spec : all_variants()) {
    if (std::holds_alternative<Index>(spec) || std::holds_alternative<Copy>(spec)) continue;
    const auto* rotated = std::get_if<Rotated>(&spec);
    for (const DType dtype : kFloats) {
      const std::int64_t elems = 2 * group_of(spec) + 3;
      SCOPED_TRACE(describe(spec, dtype, elems));
      const Bytes encoded = harness.encode(spec, dense(dtype, sample(spec, dtype, elems, 71)));
      const Values wide = to_values(DType::f32, harness.decode(spec, encoded, DType::f32, line(elems)));
      for (const DType out : {DType::f16, DType::bf16}) {
        const Values narrow = to_values(out, harness.decode(spec, encoded, out, line(elems)));
        const Values expected = narrowed(out, wide);
        for (std::size_t i = 0; i < narrow.size(); ++i) {
          // The data has a root mean square of about 1; section 7 gives the tolerance of `rotated`.
          const double tolerance = rotated == nullptr ? 0.0 : 0x1p-6 * std::max(2.0, std::abs(wide[i]));
          ASSERT_NEAR(narrow[i], expected[i], tolerance) << to_string(out) << ", element " << i;
        }
      }
    }
  }
}

TEST_P(Calls, decoding_to_f16_saturates) {
  Harness harness(device());
  Values x = constant(256, 1e6);
  for (std::size_t i = 0; i < x.size(); i += 2) x[i] = -1e6;
  for (const CodecSpec& spec : all_variants()) {
    if (!uses_noise(spec) && !std::holds_alternative<Affine>(spec)) continue;
    SCOPED_TRACE(describe(spec, DType::f32, 256));
    for (const double v : harness.round_trip(spec, dense(DType::f32, x), DType::f16)) {
      ASSERT_LE(std::abs(v), 65504.0);
    }
  }
}

TEST_P(Calls, a_seed_by_address_is_the_seed_that_lies_there) {
  Harness harness(device());
  for (const CodecSpec& spec : all_variants()) {
    const DType dtype = codec_info(spec).encodes.front();
    const std::int64_t elems = 3 * group_of(spec) + 3;
    SCOPED_TRACE(describe(spec, dtype, elems));
    const Tensor src = dense(dtype, sample(spec, dtype, elems, 72));
    const DType out = output_type(spec, dtype);
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{0x123456789abcdef0}}) {
      const Bytes encoded = harness.encode(spec, src, {.seed = seed});
      ASSERT_TRUE(encoded == harness.encode(spec, src, {.seed = seed, .seed_by_address = true}));
      ASSERT_TRUE(harness.decode(spec, encoded, out, src.shape, {.seed = seed}) ==
                  harness.decode(spec, encoded, out, src.shape, {.seed = seed, .seed_by_address = true}));
    }
  }
}

TEST_P(Calls, decoding_with_another_seed_gives_other_values_where_decoding_uses_noise) {
  Harness harness(device());
  for (const CodecSpec& spec : all_variants()) {
    const auto* affine = std::get_if<Affine>(&spec);
    const auto* dual = std::get_if<Dual>(&spec);
    const bool noisy = std::holds_alternative<Rotated>(spec) ||
                       (affine != nullptr && affine->rounding == Rounding::dithered) ||
                       (dual != nullptr && dual->rounding == Rounding::dithered);
    const DType dtype = codec_info(spec).encodes.front();
    const std::int64_t elems = group_of(spec);
    SCOPED_TRACE(describe(spec, dtype, elems));
    const DType out = output_type(spec, dtype);
    const Bytes encoded = harness.encode(spec, dense(dtype, sample(spec, dtype, elems, 73)), {.seed = 1});
    EXPECT_EQ(noisy, harness.decode(spec, encoded, out, line(elems), {.seed = 1}) !=
                         harness.decode(spec, encoded, out, line(elems), {.seed = 2}));
  }
}

TEST_P(CpuCalls, threads_give_the_bytes_and_values_of_one_thread) {
  struct Work {
    Shape shape;
    Segments segments;
  };
  const std::vector<Work> work{{line(200001), {}}, {line(200100), {300}}, {strided({500, 400}, {420, 1}), {}}};
  Harness alone(device());
  ThreadExecutor executor(3);
  Harness together(device(), executor);
  for (const CodecSpec& spec : all_variants()) {
    const DType dtype = codec_info(spec).encodes.front();
    const DType out = output_type(spec, dtype);
    for (const auto& [shape, segments] : work) {
      SCOPED_TRACE(describe(spec, dtype, unique_elems(shape)));
      const Call call{.segments = segments};
      const Tensor src = repeated(dtype, shape, sample(spec, dtype, 8191, 74));
      const std::int64_t before = executor.tasks();
      const Bytes encoded = together.encode(spec, src, call);
      ASSERT_GT(executor.tasks(), before + 1) << "the work was not divided";
      ASSERT_TRUE(encoded == alone.encode(spec, src, call));
      ASSERT_TRUE(together.decode(spec, encoded, out, shape, call) == alone.decode(spec, encoded, out, shape, call));
    }
  }
}

}  // namespace
}  // namespace actzip::testing
