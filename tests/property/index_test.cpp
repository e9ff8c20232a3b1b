// `index` preserves every integer below its bound, and reports others without changing their neighbours.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "actzip/codec.hpp"
#include "property/sweep.hpp"
#include "support/backends.hpp"
#include "support/generators.hpp"
#include "support/harness.hpp"

namespace actzip::testing {
namespace {

class IndexCodec : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Cpu, IndexCodec, ::testing::ValuesIn(cpu_backends()), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, IndexCodec, ::testing::ValuesIn(cuda_backends()), backend_name);

constexpr std::int64_t kMost = std::int64_t{1} << 32;
constexpr std::array<std::int64_t, 12> kBounds{1, 2, 3, 16, 17, 256, 257, 50257, 65536, 65537, kMost - 1, kMost};

std::int64_t greatest(DType dtype) {
  switch (dtype) {
    case DType::u8: return std::numeric_limits<std::uint8_t>::max();
    case DType::i16: return std::numeric_limits<std::int16_t>::max();
    case DType::i32: return std::numeric_limits<std::int32_t>::max();
    default: return std::int64_t{1} << 52;  // test values are doubles
  }
}

TEST_P(IndexCodec, keeps_every_integer_below_the_bound) {
  Harness harness(device());
  for (const std::int64_t bound : kBounds) {
    const Index spec{bound};
    for (const DType dtype : codec_info(spec).encodes) {
      for (const std::int64_t elems : sweep_sizes(spec)) {
        SCOPED_TRACE(describe(spec, dtype, elems));
        const Values x = integers_below(std::min(bound, greatest(dtype) + 1), elems, 91);
        const Bytes encoded = harness.encode(spec, dense(dtype, x));
        ASSERT_EQ(harness.overflow(), 0U);
        ASSERT_EQ(to_values(DType::i64, harness.decode(spec, encoded, DType::i64, line(elems))), x);
        if (bound > std::int64_t{1} << 31) continue;  // beyond i32
        ASSERT_EQ(to_values(DType::i32, harness.decode(spec, encoded, DType::i32, line(elems))), x);
      }
    }
  }
}

TEST_P(IndexCodec, spends_the_fewest_of_the_widths_it_has) {
  for (const auto& [bound, bits] : {std::pair<std::int64_t, int>{1, 1},
                                    {2, 1},
                                    {3, 2},
                                    {4, 2},
                                    {5, 4},
                                    {16, 4},
                                    {17, 8},
                                    {256, 8},
                                    {257, 16},
                                    {65536, 16},
                                    {65537, 32},
                                    {kMost, 32}}) {
    EXPECT_EQ(encoded_bytes(Index{bound}, DType::i64, 4096), static_cast<std::size_t>(4096 * bits / 8)) << bound;
  }
}

TEST_P(IndexCodec, a_value_outside_the_bound_sets_the_word_and_harms_no_neighbour) {
  Harness harness(device());
  for (const std::int64_t bound : kBounds) {
    const Index spec{bound};
    for (const DType dtype : codec_info(spec).encodes) {
      Values outside;
      for (const std::int64_t v : {bound, bound + 1, 2 * bound + 1, greatest(dtype)}) {
        if (v >= bound && v <= greatest(dtype)) outside.push_back(static_cast<double>(v));
      }
      if (dtype != DType::u8) outside.insert(outside.end(), {-1.0, -32768.0});
      const std::int64_t elems = 1027;
      const Values x = integers_below(std::min(bound, greatest(dtype) + 1), elems, 92);
      for (const double bad : outside) {
        for (const std::size_t where : {std::size_t{0}, std::size_t{31}, std::size_t{500}, std::size_t{1026}}) {
          SCOPED_TRACE(describe(spec, dtype, elems) + ", " + std::to_string(bad));
          Values spoilt = x;
          spoilt[where] = bad;
          const Bytes encoded = harness.encode(spec, dense(dtype, spoilt));
          ASSERT_NE(harness.overflow(), 0U);
          spoilt[where] = 0.0;
          ASSERT_EQ(to_values(DType::i64, harness.decode(spec, encoded, DType::i64, line(elems))), spoilt);
        }
      }
    }
  }
}

TEST_P(IndexCodec, the_overflow_word_is_kept_by_later_calls) {
  const Index spec{10};
  const Tensor good = dense(DType::i64, integers_below(10, 300, 93));
  const Tensor bad = dense(DType::i64, constant(300, 10.0));
  const OwnedStream stream(device());
  DeviceBuffer source(device(), good.memory.size());
  DeviceBuffer target(device(), encoded_bytes(spec, DType::i64, 300));
  DeviceBuffer word(device(), 4);
  word.fill(0);
  const auto encode_now = [&](const Tensor& tensor) {
    source.write(0, tensor.memory);
    encode(spec, ConstTensorView(source.data(), DType::i64, line(300), device()),
           ByteSpan(target.data(), target.size(), device()), Seed(0), stream.get(), {},
           ByteSpan(word.data(), 4, device()));
    stream.synchronize();
    return word.read(0, 4) != Bytes(4);
  };
  EXPECT_FALSE(encode_now(good));
  EXPECT_TRUE(encode_now(bad));
  EXPECT_TRUE(encode_now(good));
}

}  // namespace
}  // namespace actzip::testing
