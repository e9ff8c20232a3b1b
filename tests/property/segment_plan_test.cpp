// Choosing bits for segments: all backends compute the same weights up to rounding, and the same table from equal
// weights.
#include "actzip/segment_plan.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "support/backends.hpp"
#include "support/generators.hpp"
#include "support/guarded_buffer.hpp"
#include "support/tensor.hpp"

namespace actzip::testing {
namespace {

class SegmentPlans : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Cpu, SegmentPlans, ::testing::ValuesIn(cpu_backends()), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, SegmentPlans, ::testing::ValuesIn(cuda_backends()), backend_name);

class CudaSegmentPlans : public CudaTest {};

using Numbers = std::vector<float>;

template <class Span>
Span whole(const GuardedBuffer& buffer, Device device) {
  return {buffer.data(), buffer.size(), device};
}

Numbers numbers_of(const Bytes& bytes) {
  Numbers result(bytes.size() / sizeof(float));
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

/// Segments of very different sizes around a common value.
Tensor samples(DType dtype, std::int64_t count, std::int64_t length) {
  Random random(static_cast<std::uint64_t>(count * length));
  Values values(static_cast<std::size_t>(count * length));
  for (std::int64_t s = 0; s < count; ++s) {
    const double scale = std::exp(random.normal());
    for (std::int64_t i = 0; i < length; ++i) {
      values[static_cast<std::size_t>(s * length + i)] = 3.0 + scale * random.normal();
    }
  }
  return dense(dtype, values);
}

Numbers weights_on(Device device, const Tensor& src, const Numbers& factors, std::int64_t count, std::size_t offset) {
  const OwnedStream stream(device);
  const GuardedBuffer data(device, src.memory, offset);
  const GuardedBuffer given(device, std::as_bytes(std::span(factors)));
  const GuardedBuffer weights(device, static_cast<std::size_t>(count) * sizeof(float));
  weigh_segments({data.data(), src.dtype, src.shape, device}, whole<ConstByteSpan>(given, device),
                 whole<ByteSpan>(weights, device), stream.get());
  stream.synchronize();
  EXPECT_TRUE(weights.guards_intact());
  return numbers_of(weights.content());
}

struct Planned {
  Bytes table;
  SegmentSummary summary;
};

Planned plan_on(Device device, const CodecSpec& spec, const Numbers& weights, std::int64_t total, int least) {
  const OwnedStream stream(device);
  const GuardedBuffer given(device, std::as_bytes(std::span(weights)));
  const GuardedBuffer table(device, weights.size());
  const GuardedBuffer summary(device, sizeof(SegmentSummary));
  plan_segments(spec, whole<ConstByteSpan>(given, device), {static_cast<std::int64_t>(weights.size()), total},
                whole<ByteSpan>(table, device), reinterpret_cast<SegmentSummary*>(summary.data()), stream.get(),
                Bits(least));
  stream.synchronize();
  EXPECT_TRUE(table.guards_intact() && summary.guards_intact());
  Planned result{table.content(), {}};
  std::memcpy(&result.summary, summary.content().data(), sizeof result.summary);
  return result;
}

TEST_P(SegmentPlans, weigh_as_the_sum_of_squares_does) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t length : {256, 300, 1024, 2047, 2048 + 512, 40 * 256, 200 * 256 + 3}) {
      const std::int64_t count = 5;
      const Tensor src = samples(dtype, count, length);
      const Numbers factors{1.0F, 2.0F, 0.5F, 0.0F, 10.0F};
      const Numbers own = weights_on(device(), src, factors, count, dtype_bytes(dtype));
      const Numbers expected = weights_on(Device(), src, factors, count, 0);
      for (std::size_t s = 0; s < own.size(); ++s) ASSERT_NEAR(own[s], expected[s], 1e-4F * expected[s]) << length;
    }
  }
}

/// The sample speaks for the whole, also where rows and channels have different sizes.
TEST_P(SegmentPlans, weigh_what_the_whole_would_weigh) {
  constexpr std::int64_t kChannels = 64;
  constexpr std::int64_t kPixels = 1024;
  Random random(3);
  Values values;
  Numbers scales;
  for (std::int64_t s = 0; s < 8; ++s) {
    scales.push_back(static_cast<float>(std::exp(random.normal())));
    for (std::int64_t c = 0; c < kChannels; ++c) {
      const double size = scales.back() * static_cast<double>(1 + c % 7);
      for (std::int64_t p = 0; p < kPixels; ++p) {
        values.push_back(size * (0.5 + static_cast<double>(p / 256)) * random.normal());
      }
    }
  }
  const Numbers own = weights_on(device(), dense(DType::f32, values), Numbers(8, 1.0F), 8, 0);
  for (std::size_t s = 1; s < 8; ++s) {
    const float ratio = scales[s] * scales[s] / (scales[0] * scales[0]);
    EXPECT_NEAR(own[s] / own[0], ratio, 0.2F * ratio);
  }
}

std::vector<Numbers> many_weights() {
  std::vector<Numbers> all{{1.0F, 1.0F}, Numbers(7, 0.0F), Numbers(33, 2.5F)};
  all.push_back({std::numeric_limits<float>::quiet_NaN(), 1.0F, -2.0F, std::numeric_limits<float>::infinity(), 0.0F});
  all.push_back({1e-45F, 3e38F, 1e-38F, 1.0F});
  for (const std::int64_t count : {3, 64, 256, 1000, 1024, 1025, 4096}) {
    Random random(static_cast<std::uint64_t>(count));
    Numbers weights;
    for (std::int64_t s = 0; s < count; ++s) {
      // Many of them are equal, so that the order of equal ones is asked for, too.
      weights.push_back(static_cast<float>(std::exp(std::round(4.0 * random.normal()) / 2.0)));
    }
    all.push_back(weights);
  }
  return all;
}

TEST_P(SegmentPlans, are_the_same_everywhere) {
  const std::vector<CodecSpec> specs{Rotated{}, Affine{}, Affine{.rounding = Rounding::dithered}};
  for (const Numbers& weights : many_weights()) {
    const auto count = static_cast<std::int64_t>(weights.size());
    for (const CodecSpec& spec : specs) {
      const int most = std::holds_alternative<Rotated>(spec) ? 4 : 8;
      for (const int least : {1, 2}) {
        for (const std::int64_t total : {least * count, 2 * count, 2 * count + count / 3, 3 * count, most * count}) {
          const Planned own = plan_on(device(), spec, weights, total, least);
          const Planned expected = plan_on(Device(), spec, weights, total, least);
          ASSERT_EQ(own.table, expected.table) << count << " segments, " << total << " bits";
          ASSERT_EQ(own.summary.fewest_bits, expected.summary.fewest_bits);
          ASSERT_EQ(own.summary.most_bits, expected.summary.most_bits);
          ASSERT_EQ(own.summary.mean_bits, expected.summary.mean_bits);
          ASSERT_NEAR(own.summary.error, expected.summary.error, 1e-4F * expected.summary.error);
          for (int b = 0; b < 8; ++b) {
            ASSERT_NEAR(own.summary.error_at[b], expected.summary.error_at[b], 1e-4F * expected.summary.error_at[b]);
          }
        }
      }
    }
  }
}

TEST_F(CudaSegmentPlans, can_be_captured_and_read_what_is_there_when_they_run) {
  constexpr std::int64_t kCount = 40;
  constexpr std::int64_t kLength = 4096;
  const Device device = Device::cuda();
  const Segments segments{kCount, 2 * kCount};
  const OwnedStream stream(device);
  GuardedBuffer data(device, static_cast<std::size_t>(kCount * kLength) * 2);
  const GuardedBuffer weights(device, kCount * sizeof(float));
  const GuardedBuffer table(device, kCount);
  const auto work = [&] {
    weigh_segments({data.data(), DType::bf16, Shape::contiguous({kCount, kLength}), device}, {},
                   whole<ByteSpan>(weights, device), stream.get());
    plan_segments(Rotated{}, whole<ConstByteSpan>(weights, device), segments, whole<ByteSpan>(table, device), nullptr,
                  stream.get());
  };
  work();  // a kernel is loaded at its first launch, which must not fall into the recording
  stream.synchronize();
  const CudaGraph graph(stream, work);
  const Tensor src = samples(DType::bf16, kCount, kLength);
  data.write(src.memory);
  graph.launch();
  stream.synchronize();
  const Numbers found = numbers_of(weights.content());
  EXPECT_EQ(table.content(), plan_on(Device(), Rotated{}, found, segments.total_bits, 1).table);
  EXPECT_GT(found[0], 0.0F);
}

}  // namespace
}  // namespace actzip::testing
