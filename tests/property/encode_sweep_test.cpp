// How encode() writes bytes, for every codec, width, element type and size on every backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <set>
#include <string_view>

#include "actzip/codec.hpp"
#include "format/dual.hpp"
#include "property/sweep.hpp"
#include "support/backends.hpp"
#include "support/generators.hpp"
#include "support/harness.hpp"

namespace actzip::testing {
namespace {

class EncodeSweep : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Cpu, EncodeSweep, ::testing::ValuesIn(cpu_backends()), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, EncodeSweep, ::testing::ValuesIn(cuda_backends()), backend_name);

format::Sections sections_of(const Combination& c) {
  return std::visit(
      [&](const auto& spec) { return format::sections(spec, format::geometry(spec, c.elems, Segments{}), c.dtype); },
      c.spec);
}

bool zeros(const Bytes& bytes, std::int64_t first, std::int64_t last) {
  return std::all_of(bytes.begin() + first, bytes.begin() + last, [](std::byte b) { return b == std::byte{0}; });
}

TEST_P(EncodeSweep, writes_every_byte_of_its_destination_and_nothing_else_in_every_combination) {
  Harness harness(device());
  std::int64_t ran = 0;
  for (const Combination& c : combinations()) {
    SCOPED_TRACE(describe(c));
    const Tensor src = dense(c.dtype, sample(c.spec, c.dtype, c.elems, 11));
    const Bytes bytes = harness.encode(c.spec, src, {.fill = 0xA5});
    ASSERT_EQ(bytes.size(), encoded_bytes(c.spec, c.dtype, c.elems));
    ASSERT_TRUE(bytes == harness.encode(c.spec, src, {.fill = 0x5A})) << "a byte was not written, or not always alike";

    const DType out = output_type(c.spec, c.dtype);
    const Bytes values = harness.decode(c.spec, bytes, out, src.shape, {.fill = 0xA5});
    ASSERT_TRUE(values == harness.decode(c.spec, bytes, out, src.shape, {.fill = 0x5A}))
        << "an element was not written, or read from outside";
    if (HasFailure()) return;
    ++ran;
  }
  std::int64_t expected = 0;
  for (const CodecInfo& info : codecs()) {
    expected += static_cast<std::int64_t>(info.variants.size() * info.encodes.size() * kSizeCount);
  }
  for (const CodecSpec& spec : further_variants()) {
    expected += static_cast<std::int64_t>(codec_info(spec).encodes.size() * kSizeCount);
  }
  EXPECT_EQ(ran, expected);
  std::cout << "[ combinations ] " << backend() << ": " << ran << " of " << expected << '\n';
  RecordProperty("combinations", std::to_string(ran));
}

TEST_P(EncodeSweep, pads_every_section_with_zeros) {
  Harness harness(device());
  for (const Combination& c : combinations()) {
    SCOPED_TRACE(describe(c));
    const Bytes bytes = harness.encode(c.spec, dense(c.dtype, sample(c.spec, c.dtype, c.elems, 12)));
    const format::Sections s = sections_of(c);
    ASSERT_TRUE(zeros(bytes, s.stats + s.stats_used, s.codes));
    ASSERT_TRUE(zeros(bytes, s.codes + s.codes_used, s.mask));
    ASSERT_TRUE(zeros(bytes, s.mask + s.mask_used, s.total));
  }
}

TEST_P(EncodeSweep, depends_on_the_seed_exactly_where_noise_is_used) {
  Harness harness(device());
  for (const CodecSpec& spec : all_variants()) {
    const std::int64_t elems = group_of(spec) + 5;
    const DType dtype = codec_info(spec).encodes.front();
    SCOPED_TRACE(describe(spec, dtype, elems));
    const Tensor src = dense(dtype, sample(spec, dtype, elems, 13));
    const Bytes one = harness.encode(spec, src, {.seed = 1});
    EXPECT_EQ(one != harness.encode(spec, src, {.seed = 2}), uses_noise(spec));
    EXPECT_EQ(one != harness.encode(spec, src, {.seed = 1 + (std::uint64_t{1} << 32)}), uses_noise(spec))
        << "the upper half of the seed counts too";
  }
}

TEST(SweepCount, every_backend_of_this_machine_runs_the_sweep) {
  const std::size_t backends = cpu_levels().size() + cuda_backends().size();
  int swept = 0;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(i);
    if (!std::string_view(suite.name()).ends_with("/EncodeSweep")) continue;
    for (int j = 0; j < suite.total_test_count(); ++j) {
      swept += std::string_view(suite.GetTestInfo(j)->name()).starts_with("writes_every_byte") ? 1 : 0;
    }
  }
  EXPECT_EQ(static_cast<std::size_t>(swept), backends);
  std::cout << "[ combinations ] " << combinations().size() << " on each of " << backends
            << " backends: " << combinations().size() * backends << '\n';
}

TEST(SweepCount, the_registry_has_every_width_rounding_and_plane) {
  std::set<std::string> names;
  for (const CodecSpec& spec : registry_variants()) names.insert(to_string(spec));
  std::size_t wanted = 0;
  const auto want = [&](const CodecSpec& spec) {
    ++wanted;
    EXPECT_EQ(names.count(to_string(spec)), 1U) << to_string(spec);
  };
  for (int bits = 1; bits <= 8; ++bits) {
    for (const Rounding r : {Rounding::nearest, Rounding::stochastic, Rounding::dithered}) want(Affine{Bits(bits), r});
  }
  for (int bits = 1; bits <= 4; ++bits) {
    want(Rotated{Bits(bits)});
    want(Rotated{Bits(bits), GroupSize(256), StatsType::bf16, true});
  }
  want(Mask{});
  for (const int bits : {1, 2, 4, 8, 16, 32}) want(Index{std::int64_t{1} << bits});
  want(Cast{DType::bf16});
  want(Cast{DType::f16});
  want(Copy{});
  for (int bits = 1; bits <= 8; ++bits) {
    for (const Rounding r : {Rounding::stochastic, Rounding::dithered}) want(Dual{Bits(bits), r});
  }
  EXPECT_GE(names.size(), wanted);
}

}  // namespace
}  // namespace actzip::testing
