// More than 2^31 elements: no index, offset or counter may have only 32 bits. The tests check windows at the start,
// around 2^31 and at the end against the arithmetic of the format.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "actzip/codec.hpp"
#include "format/geometry.hpp"
#include "math/affine.hpp"
#include "math/hash.hpp"
#include "property/encoded.hpp"
#include "support/backends.hpp"
#include "support/generators.hpp"
#include "support/tensor.hpp"

namespace actzip::testing {
namespace {

constexpr std::int64_t kElems = (std::int64_t{1} << 31) + (std::int64_t{1} << 20) + 77;
constexpr std::int64_t kPeriod = 1000003;  // no multiple of it is a power of two: a wrong offset shows
constexpr std::uint64_t kLargeSeed = 131;
constexpr std::array<std::int64_t, 5> kGroups{0, (std::int64_t{1} << 30) / 256, (std::int64_t{1} << 31) / 256 - 1,
                                              (std::int64_t{1} << 31) / 256, kElems / 256 - 1};

class CudaLarge : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped() || HasFailure()) return;
    constexpr std::size_t kNeeded = 12'000'000'000;
    if (cuda_runtime::free_bytes() < kNeeded) {
      ASSERT_FALSE(cuda_required()) << "too little memory on the device";
      GTEST_SKIP() << "needs 12 GB of device memory";
    }
  }
};

/// `block` over and over, until the buffer is full; made by doubling on the device.
DeviceBuffer repeated(const Bytes& block, std::size_t bytes) {
  DeviceBuffer buffer(kCudaDevice, bytes);
  buffer.write(0, block);
  for (std::size_t done = block.size(); done < bytes; done *= 2) {
    cuda_runtime::copy(buffer.data() + done, buffer.data(), std::min(done, bytes - done));
  }
  return buffer;
}

struct Coded {
  DeviceBuffer encoded;
  DeviceBuffer decoded;
};

Coded round_trip(const CodecSpec& spec, DType dtype, const DeviceBuffer& source) {
  const OwnedStream stream(kCudaDevice);
  Coded result{DeviceBuffer(kCudaDevice, encoded_bytes(spec, dtype, kElems)), DeviceBuffer(kCudaDevice, source.size())};
  result.encoded.fill(0xA5);
  result.decoded.fill(0xA5);
  encode(spec, ConstTensorView(source.data(), dtype, line(kElems), kCudaDevice),
         ByteSpan(result.encoded.data(), result.encoded.size(), kCudaDevice), Seed(kLargeSeed), stream.get());
  decode(spec, ConstByteSpan(result.encoded.data(), result.encoded.size(), kCudaDevice),
         TensorView(result.decoded.data(), dtype, line(kElems), kCudaDevice), Seed(kLargeSeed), stream.get());
  stream.synchronize();
  return result;
}

Values window(const DeviceBuffer& buffer, DType dtype, std::int64_t first, std::int64_t count) {
  const auto width = dtype_bytes(dtype);
  return to_values(dtype,
                   buffer.read(static_cast<std::size_t>(first) * width, static_cast<std::size_t>(count) * width));
}

TEST_F(CudaLarge, affine_codes_more_than_2_to_the_31_elements) {
  const Affine spec{Bits(2), Rounding::stochastic};
  const Bytes block = to_bytes(DType::bf16, gaussian(kPeriod, 132));
  const Values cycle = to_values(DType::bf16, block);
  const DeviceBuffer source = repeated(block, static_cast<std::size_t>(kElems) * 2);
  const Coded coded = round_trip(spec, DType::bf16, source);
  const format::Sections s = format::sections(spec, format::geometry(spec, kElems, {}), DType::bf16);
  const math::HashKey key = math::hash_key(kLargeSeed);
  for (const std::int64_t g : kGroups) {
    Values x;
    for (std::int64_t i = 0; i < 256; ++i) x.push_back(cycle[static_cast<std::size_t>((g * 256 + i) % kPeriod)]);
    const auto [lo, hi] = std::minmax_element(x.begin(), x.end());
    const auto group = math::affine_group<2>(static_cast<float>(*lo), static_cast<float>(*hi), spec.stats, spec.floor);
    const Pair stats = read_stats(spec.stats, coded.encoded.read(static_cast<std::size_t>(g) * 4, 4), 0);
    EXPECT_EQ(stats.first, group.min) << "group " << g;
    EXPECT_EQ(stats.second, group.step) << "group " << g;
    const Bytes codes = coded.encoded.read(static_cast<std::size_t>(s.codes + g * 64), 64);
    const Values y = window(coded.decoded, DType::bf16, g * 256, 256);
    for (std::int64_t i = 0; i < 256; ++i) {
      const auto e = static_cast<std::uint64_t>(g * 256 + i);
      const std::uint32_t noise = (math::hash_word64(key, e / 4) >> (8 * (e % 4))) & 255U;
      const auto value = static_cast<float>(x[static_cast<std::size_t>(i)]);
      const std::uint32_t code = ((math::affine_steps<true>(value, group) + noise) >> math::kAffineCodeBit<true>)&3U;
      ASSERT_EQ(read_code(codes, 0, 2, i), code) << "group " << g << ", element " << i;
      const double back = math::affine_dequantize<false>(code, group.min, group.step, noise);
      ASSERT_EQ(y[static_cast<std::size_t>(i)], stored(DType::bf16, Values{back}).front());
    }
  }
  const Values tail = window(coded.decoded, DType::bf16, kElems - 77, 77);
  for (const double v : tail) ASSERT_LE(std::abs(v), 6.0) << "the ragged last group";
}

TEST_F(CudaLarge, rotated_codes_more_than_2_to_the_31_elements) {
  const Bytes block = to_bytes(DType::bf16, gaussian(kPeriod, 133));
  const Values cycle = to_values(DType::bf16, block);
  const DeviceBuffer source = repeated(block, static_cast<std::size_t>(kElems) * 2);
  const Coded coded = round_trip(Rotated{Bits(2)}, DType::bf16, source);
  for (const std::int64_t g : kGroups) {
    const std::int64_t first = std::min(g * 256, kElems - 4096 - 77) / 256 * 256;
    const Values y = window(coded.decoded, DType::bf16, first, 4096);
    double error = 0.0;
    double power = 0.0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double x = cycle[static_cast<std::size_t>((first + static_cast<std::int64_t>(i)) % kPeriod)];
      error += (y[i] - x) * (y[i] - x);
      power += x * x;
    }
    EXPECT_NEAR(error / power, 0.1331, 0.03) << "from element " << first;
  }
  double error = 0.0;
  const Values tail = window(coded.decoded, DType::bf16, kElems - 77, 77);
  for (std::size_t i = 0; i < tail.size(); ++i) {
    const double x = cycle[static_cast<std::size_t>((kElems - 77 + static_cast<std::int64_t>(i)) % kPeriod)];
    error += (tail[i] - x) * (tail[i] - x);
  }
  EXPECT_LE(error / 77, 0.4) << "the ragged last group";
}

TEST_F(CudaLarge, mask_codes_more_than_2_to_the_31_bytes) {
  Bytes block = random_bytes(kPeriod, 134);
  for (std::byte& b : block) b &= std::byte{1};
  const DeviceBuffer source = repeated(block, static_cast<std::size_t>(kElems));
  const Coded coded = round_trip(Mask{}, DType::u8, source);
  constexpr std::int64_t kWindow = 1 << 20;
  for (const std::int64_t first : {std::int64_t{0}, (std::int64_t{1} << 31) - kWindow / 2, kElems - kWindow}) {
    const Bytes got = coded.decoded.read(static_cast<std::size_t>(first), kWindow);
    ASSERT_TRUE(got == source.read(static_cast<std::size_t>(first), kWindow)) << "from element " << first;
  }
}

}  // namespace
}  // namespace actzip::testing
