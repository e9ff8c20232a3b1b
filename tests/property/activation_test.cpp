// Activation functions on encoded inputs: the bytes must equal those of encode(), and the numbers those of the formula
// in binary64, applied to what decode() returns.
#include "actzip/activation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "actzip/codec.hpp"
#include "support/backends.hpp"
#include "support/generators.hpp"
#include "support/harness.hpp"
#include "unit/expect_error.hpp"

namespace actzip::testing {
namespace {

constexpr std::uint64_t kActivationSeed = 5;

struct ValueAndSlope {
  double value;
  double slope;
};

ValueAndSlope formula(Activation activation, double x) {
  if (activation == Activation::gelu) {
    const double share = 0.5 * std::erfc(-x * std::sqrt(0.5));
    const double density = std::exp(-0.5 * x * x) / std::sqrt(2.0 * M_PI);
    return {x * share, share + x * density};
  }
  if (activation == Activation::gelu_tanh) {
    const double root = std::sqrt(2.0 / M_PI);
    const double tanh = std::tanh(root * (x + 0.044715 * x * x * x));
    const double slope = root * (1.0 + 3.0 * 0.044715 * x * x);
    return {0.5 * x * (1.0 + tanh), 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * slope};
  }
  const double share = 1.0 / (1.0 + std::exp(-x));
  return {x * share, share * (1.0 + x * (1.0 - share))};
}

/// Half a unit in the last place of the type, and what the functions may miss: for 16-bit types 2^-23 of x.
double tolerance(DType dtype, double x, double value) {
  const double relative = dtype == DType::f32 ? 0x1p-20 : dtype == DType::f16 ? 0x1.1p-11 : 0x1.1p-8;
  return relative * std::abs(value) + (dtype == DType::f32 ? 0x1p-22 : 0x1p-23 * std::abs(x) + 0x1p-24);
}

DeviceBuffer on_device(DType dtype, const Values& values) {
  const Bytes elements = to_bytes(dtype, values);
  DeviceBuffer buffer(kCudaDevice, elements.size());
  buffer.write(0, elements);
  return buffer;
}

/// Also where the tails are thin.
Values input(std::int64_t count) {
  Values values = gaussian(count, 3);
  for (std::size_t i = 0; i < values.size(); i += 3) values[i] *= 4.0;
  return values;
}

void check_forward(Activation activation, const Elements& elements, int bits) {
  const CodecSpec spec = Rotated{.bits = Bits(bits)};
  ASSERT_TRUE(can_fuse_activation(spec, elements, kCudaDevice));
  const DeviceBuffer x = on_device(elements.dtype, input(elements.count));
  DeviceBuffer y(kCudaDevice, x.size());
  DeviceBuffer encoded(kCudaDevice, encoded_bytes(spec, elements.dtype, elements.count));
  y.fill(0xA5);
  encoded.fill(0xA5);
  OwnedStream stream(kCudaDevice);
  encode_activated(spec, activation, elements, x.data(), y.data(), {encoded.data(), encoded.size(), kCudaDevice},
                   Seed(kActivationSeed), stream.get());
  stream.synchronize();
  Harness harness(kCudaDevice);
  const Tensor tensor = dense(elements.dtype, input(elements.count));
  ASSERT_EQ(encoded.read(0, encoded.size()), harness.encode(spec, tensor, {.seed = kActivationSeed}));
  const Values given = to_values(elements.dtype, x.read(0, x.size()));
  const Values result = to_values(elements.dtype, y.read(0, y.size()));
  for (std::size_t i = 0; i < given.size(); ++i) {
    const double expected = formula(activation, given[i]).value;
    ASSERT_NEAR(result[i], expected, tolerance(elements.dtype, given[i], expected)) << "of " << given[i];
  }
}

/// The encoded input, and what decode() gives of it.
struct EncodedInput {
  EncodedInput(const CodecSpec& spec, const Elements& elements)
      : EncodedInput(spec, elements,
                     Harness(kCudaDevice)
                         .encode(spec, dense(elements.dtype, input(elements.count)), {.seed = kActivationSeed})) {}

  [[nodiscard]] ConstByteSpan bytes() const { return {buffer.data(), buffer.size(), kCudaDevice}; }

  DeviceBuffer buffer;
  Values decoded;

 private:
  EncodedInput(const CodecSpec& spec, const Elements& elements, const Bytes& encoded)
      : buffer(kCudaDevice, encoded.size()),
        decoded(to_values(elements.dtype, Harness(kCudaDevice)
                                              .decode(spec, encoded, elements.dtype, line(elements.count),
                                                      {.seed = kActivationSeed}))) {
    buffer.write(0, encoded);
  }
};

void check_backward(Activation activation, const Elements& elements, int bits) {
  const CodecSpec spec = Rotated{.bits = Bits(bits)};
  const EncodedInput x(spec, elements);
  const DeviceBuffer above = on_device(elements.dtype, gaussian(elements.count, 9));
  DeviceBuffer below(kCudaDevice, above.size());
  below.fill(0xA5);
  OwnedStream stream(kCudaDevice);
  activation_backward(spec, activation, elements, x.bytes(), above.data(), below.data(), Seed(kActivationSeed),
                      stream.get());
  stream.synchronize();
  const Values dy = to_values(elements.dtype, above.read(0, above.size()));
  const Values dx = to_values(elements.dtype, below.read(0, below.size()));
  for (std::size_t i = 0; i < dx.size(); ++i) {
    const double expected = dy[i] * formula(activation, x.decoded[i]).slope;
    // Near its zeros a slope is a difference, with the error of its parts.
    ASSERT_NEAR(dx[i], expected, tolerance(elements.dtype, 0.0, expected) + std::abs(dy[i]) * 0x1p-20) << x.decoded[i];
  }
}

/// The same bytes as those of the values that decode() gives, multiplied and rounded once: twice them is exact.
void check_product(const Elements& elements, int bits) {
  const CodecSpec spec = Rotated{.bits = Bits(bits)};
  const EncodedInput x(spec, elements);
  const Values factors = stored(elements.dtype, gaussian(elements.count, 9));
  DeviceBuffer product = on_device(elements.dtype, factors);
  OwnedStream stream(kCudaDevice);
  product_backward(spec, elements, x.bytes(), 2.0F, product.data(), product.data(), Seed(kActivationSeed),
                   stream.get());
  stream.synchronize();
  Values expected(factors.size());
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = 2.0 * x.decoded[i] * factors[i];
  ASSERT_EQ(product.read(0, product.size()), to_bytes(elements.dtype, expected));
}

/// Gradients behind the mask of a ReLU (no factor) or a dropout, in their own place.
void check_masked(const Elements& elements, std::optional<float> factor) {
  Values values = gaussian(elements.count, 4);
  Harness harness(kCudaDevice);
  const Bytes mask = harness.encode(Mask{}, dense(elements.dtype, values));
  DeviceBuffer encoded(kCudaDevice, mask.size());
  encoded.write(0, mask);
  Values gradients = gaussian(elements.count, 9);
  for (std::size_t i = 0; i < gradients.size(); i += 5) gradients[i] = std::numeric_limits<double>::infinity();
  DeviceBuffer gradient = on_device(elements.dtype, gradients);
  OwnedStream stream(kCudaDevice);
  const ConstByteSpan bits(encoded.data(), encoded.size(), kCudaDevice);
  if (factor) {
    dropout_backward(elements, bits, *factor, gradient.data(), gradient.data(), stream.get());
  } else {
    relu_backward(elements, bits, gradient.data(), gradient.data(), stream.get());
  }
  stream.synchronize();
  const Values given = stored(elements.dtype, gradients);
  const Values result = to_values(elements.dtype, gradient.read(0, gradient.size()));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const bool is_on = values[i] > 0.0;
    const double wanted = factor ? given[i] * (is_on ? *factor : 0.0F) : is_on ? given[i] : 0.0;
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(result[i])) << i;
    } else {
      ASSERT_EQ(result[i], stored(elements.dtype, Values{wanted})[0]) << i;
    }
  }
}

class FusedActivation : public CudaTest {};

TEST_F(FusedActivation, does_what_the_formula_says) {
  for (const Activation activation : {Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const std::int64_t count : {8, 1016, 1024, 70'000}) {
        SCOPED_TRACE(std::to_string(static_cast<int>(activation)) + " of " + std::to_string(count) + " " +
                     std::string(to_string(dtype)));
        for (int bits = 1; bits <= 4; ++bits) check_forward(activation, {count, dtype}, bits);
        check_backward(activation, {count, dtype}, 3);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(FusedActivation, takes_every_width_in_backward) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (int bits = 1; bits <= 4; ++bits) check_backward(Activation::gelu, {4096, dtype}, bits);
  }
}

TEST_F(FusedActivation, multiplies_what_it_decodes) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t count : {8, 1016, 1024, 70'000}) {
      for (int bits = 1; bits <= 4; ++bits) check_product({count, dtype}, bits);
    }
  }
}

TEST_F(FusedActivation, lets_gradients_through_a_mask) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t count : {1, 7, 8, 1000, 1024, 70'001}) {
      check_masked({count, dtype}, std::nullopt);
      check_masked({count, dtype}, 1.0F / 0.9F);
    }
  }
}

TEST_F(FusedActivation, keeps_what_is_too_large_infinite_and_what_is_no_number_as_such) {
  constexpr std::int64_t kCount = 1024;
  const CodecSpec spec = Rotated{.bits = Bits(2)};
  Values values(kCount, 3.0);
  values[300] = std::numeric_limits<double>::quiet_NaN();  // spoils the second group
  Harness harness(kCudaDevice);
  const Bytes bytes = harness.encode(spec, dense(DType::f16, values), {.seed = kActivationSeed});
  DeviceBuffer encoded(kCudaDevice, bytes.size());
  encoded.write(0, bytes);
  DeviceBuffer gradient = on_device(DType::f16, Values(kCount, 65504.0));
  OwnedStream stream(kCudaDevice);
  activation_backward(spec, Activation::silu, {kCount, DType::f16}, {encoded.data(), encoded.size(), kCudaDevice},
                      gradient.data(), gradient.data(), Seed(kActivationSeed), stream.get());
  stream.synchronize();
  const Values result = to_values(DType::f16, gradient.read(0, gradient.size()));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const bool spoiled = i >= 256 && i < 512;
    ASSERT_TRUE(spoiled ? std::isnan(result[i]) : std::isinf(result[i])) << i;  // the slope at 3 is above 1
  }
}

TEST(ActivationCalls, refuses_what_it_does_not_take) {
  EXPECT_FALSE(can_fuse_activation(Rotated{.bits = Bits(2)}, {8, DType::f32}, Device::cpu()));
  EXPECT_FALSE(can_fuse_activation(Rotated{.bits = Bits(2)}, {7, DType::f32}, kCudaDevice));
  EXPECT_FALSE(can_fuse_activation(Affine{.bits = Bits(2)}, {8, DType::f32}, kCudaDevice));
  EXPECT_FALSE(can_fuse_activation(Rotated{.bits = Bits(2)}, {8, DType::i32}, kCudaDevice));
  test::expect_error(
      ErrorCode::invalid_spec,
      "activation_backward: 16 elements of bf16 as 'rotated:2' (allowed: rotated in groups of 256 without a mask "
      "plane, on CUDA, multiples of 8 elements of f32, f16 or bf16)",
      [&] {
        activation_backward(Rotated{.bits = Bits(2)}, Activation::gelu, {16, DType::bf16}, {}, nullptr, nullptr,
                            Seed(1), Stream());
      });
  EXPECT_FALSE(can_fuse_mask({8, DType::f32}, Device::cpu()));
  EXPECT_FALSE(can_fuse_mask({0, DType::f32}, kCudaDevice));
  EXPECT_FALSE(can_fuse_mask({8, DType::boolean}, kCudaDevice));
  test::expect_error(ErrorCode::invalid_spec,
                     "relu_backward: 16 elements of bf16 (allowed: at least one of f32, f16 or bf16, on CUDA)",
                     [&] { relu_backward({16, DType::bf16}, {}, nullptr, nullptr, Stream()); });
}

}  // namespace
}  // namespace actzip::testing
