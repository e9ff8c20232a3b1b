// Batch norm on encoded inputs: the bytes must equal those that encode() makes of the normalised values, and the
// numbers those of the formula in binary64, applied to what decode() returns.
#include "actzip/batch_norm.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "actzip/codec.hpp"
#include "actzip/row_norm.hpp"
#include "support/backends.hpp"
#include "support/generators.hpp"
#include "support/harness.hpp"
#include "unit/expect_error.hpp"

namespace actzip::testing {
namespace {

constexpr std::uint64_t kNormSeed = 11;
constexpr float kEpsilon = 1.0F;  // what was rounded is not divided by little: one row has no variance
constexpr float kMomentum = 0.25F;

Values f32_values(const DeviceBuffer& buffer, std::int64_t count) {
  return to_values(DType::f32, buffer.read(0, static_cast<std::size_t>(count) * 4));
}

/// A batch norm with a ReLU behind it, on made-up data: everything lies on the device.
class Layer {
 public:
  Layer(const ChannelRows& shape, const CodecSpec& spec)
      : shape_(shape),
        spec_(spec),
        x_(filled(shape.dtype, input())),
        gradient_(filled(shape.dtype, gaussian(shape.elems(), 4))),
        y_(kCudaDevice, bytes()),
        encoded_(kCudaDevice, encoded_bytes(spec, shape.dtype, shape.elems())),
        encoded_input_(kCudaDevice, encoded_.size()),
        positive_(kCudaDevice, sign_plane_bytes(shape)),
        norm_(kCudaDevice, static_cast<std::size_t>(4 * shape.channels) * 4) {
    weight_ = channel_numbers(7, 1.0, 0.3);
    bias_ = channel_numbers(8, 0.0, 0.5);
    measure();
    encoded_.fill(0xA5);
    positive_.fill(0xA5);
    encoded_input_.write(0, Harness(kCudaDevice).encode(spec, dense(shape.dtype, inputs()), {.seed = kNormSeed}));
  }

  /// `plain`: without weight and bias.
  void forward(bool plain = false) {
    const DeviceBuffer weight = filled(DType::f32, weight_);
    const DeviceBuffer bias = filled(DType::f32, bias_);
    DeviceBuffer running_mean = filled(DType::f32, Values(mean_.size(), 0.5));
    DeviceBuffer running_variance = filled(DType::f32, Values(mean_.size(), 2.0));
    DeviceBuffer workspace(kCudaDevice, batch_norm_workspace_bytes(shape_));
    workspace.fill(0xFF);  // NaN
    const auto number = [](const DeviceBuffer& buffer) { return reinterpret_cast<float*>(buffer.data()); };
    measure_batch(spec_, shape_, x_.data(),
                  {plain ? nullptr : number(weight), plain ? nullptr : number(bias), number(running_mean),
                   number(running_variance), kMomentum, kEpsilon},
                  number(norm_), {workspace.data(), workspace.size(), kCudaDevice}, stream_.get());
    stream_.synchronize();
    running_mean_ = f32_values(running_mean, shape_.channels);
    running_variance_ = f32_values(running_variance, shape_.channels);
    encode_normalized(spec_, shape_, x_.data(), norm(), y_.data(), {encoded_.data(), encoded_.size(), kCudaDevice},
                      positive_.data(), Seed(kNormSeed), stream_.get());
    stream_.synchronize();
  }

  /// Replaces one element of the input, or of the output's gradient.
  void set_input(std::size_t element, double value) { set(x_, element, value); }
  void set_gradient(std::size_t element, double value) { set(gradient_, element, value); }

  [[nodiscard]] Values decoded(bool with_mask) {
    DeviceBuffer target(kCudaDevice, bytes());
    target.fill(0xA5);
    decode_normalized(spec_, shape_, encoded(NormValues::normal), norm(), target.data(),
                      with_mask ? positive_.data() : nullptr, Seed(kNormSeed), stream_.get());
    stream_.synchronize();
    return to_values(shape_.dtype, target.read(0, bytes()));
  }

  struct Gradients {
    Values x;
    Values weight;
    Values bias;
  };
  [[nodiscard]] Gradients backward(bool with_mask, NormValues values) {
    DeviceBuffer x(kCudaDevice, bytes());
    DeviceBuffer weight(kCudaDevice, static_cast<std::size_t>(shape_.channels) * 4);
    DeviceBuffer bias(kCudaDevice, weight.size());
    DeviceBuffer workspace(kCudaDevice, batch_norm_workspace_bytes(shape_));
    x.fill(0xA5);
    workspace.fill(0xFF);  // NaN
    batch_norm_backward(
        spec_, shape_, encoded(values), values, norm(),
        {gradient_.data(), x.data(), reinterpret_cast<float*>(weight.data()), reinterpret_cast<float*>(bias.data())},
        with_mask ? positive_.data() : nullptr, {workspace.data(), workspace.size(), kCudaDevice}, Seed(kNormSeed),
        stream_.get());
    stream_.synchronize();
    return {to_values(shape_.dtype, x.read(0, bytes())), f32_values(weight, shape_.channels),
            f32_values(bias, shape_.channels)};
  }

  /// The same by the formula, from what decode() gives.
  [[nodiscard]] Gradients expected(bool with_mask, NormValues values) const {
    Values normal = restored(values);
    if (values == NormValues::input) {
      for (std::size_t i = 0; i < normal.size(); ++i) {
        normal[i] = normalized(normal[i], i % static_cast<std::size_t>(shape_.channels));
      }
    }
    const Values dy = to_values(shape_.dtype, gradient_.read(0, bytes()));
    const Values y = outputs();
    const auto channels = static_cast<std::size_t>(shape_.channels);
    const auto rows = static_cast<double>(shape_.rows);
    Gradients result{Values(normal.size()), Values(channels), Values(channels)};
    const auto counts = [&](std::size_t i) { return !with_mask || y[i] > 0.0; };
    for (std::size_t i = 0; i < normal.size(); ++i) {
      if (!counts(i)) continue;
      result.weight[i % channels] += dy[i] * normal[i];
      result.bias[i % channels] += dy[i];
    }
    for (std::size_t i = 0; i < normal.size(); ++i) {
      const std::size_t c = i % channels;
      const double own = counts(i) ? dy[i] : 0.0;
      result.x[i] =
          weight_[c] * inverse_deviation(c) * (own - result.bias[c] / rows - normal[i] * result.weight[c] / rows);
    }
    return result;
  }

  [[nodiscard]] Values expected_outputs(bool with_mask) const {
    Values values = restored(NormValues::normal);
    const Values y = outputs();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool counts = !with_mask || y[i] > 0.0;
      const std::size_t c = i % static_cast<std::size_t>(shape_.channels);
      values[i] = counts ? values[i] * weight_[c] + bias_[c] : 0.0;
    }
    return values;
  }
  /// The running statistics after forward(), and what they should be.
  [[nodiscard]] const Values& running_mean() const { return running_mean_; }
  [[nodiscard]] const Values& running_variance() const { return running_variance_; }
  [[nodiscard]] Values expected_running_mean() const {
    Values values = mean_;
    for (double& value : values) value = 0.5 + kMomentum * (value - 0.5);
    return values;
  }
  [[nodiscard]] Values expected_running_variance() const {
    const auto rows = static_cast<double>(shape_.rows);
    Values values = variance_;
    for (double& value : values) value = 2.0 + kMomentum * (value * rows / std::max(rows - 1.0, 1.0) - 2.0);
    return values;
  }
  [[nodiscard]] Values outputs() const { return to_values(shape_.dtype, y_.read(0, bytes())); }
  [[nodiscard]] Values inputs() const { return to_values(shape_.dtype, x_.read(0, bytes())); }
  [[nodiscard]] Bytes encoding() const { return encoded_.read(0, encoded_.size()); }
  [[nodiscard]] Bytes plane() const { return positive_.read(0, static_cast<std::size_t>(shape_.elems() / 8)); }
  [[nodiscard]] double affine(double x, std::size_t channel) const {
    return normalized(x, channel) * weight_[channel] + bias_[channel];
  }

 private:
  static DeviceBuffer filled(DType dtype, const Values& values) {
    const Bytes elements = to_bytes(dtype, values);
    DeviceBuffer buffer(kCudaDevice, elements.size());
    buffer.write(0, elements);
    return buffer;
  }
  void set(DeviceBuffer& buffer, std::size_t element, double value) const {
    buffer.write(element * dtype_bytes(shape_.dtype), to_bytes(shape_.dtype, Values{value}));
  }
  [[nodiscard]] Values input() const {
    Values values = gaussian(shape_.elems(), 3);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] += 2.0 * std::sin(static_cast<double>(i % static_cast<std::size_t>(shape_.channels)));
    }
    return values;
  }
  void measure() {
    const Values x = inputs();
    const auto channels = static_cast<std::size_t>(shape_.channels);
    const auto rows = static_cast<double>(shape_.rows);
    mean_.assign(channels, 0.0);
    variance_.assign(channels, 0.0);
    for (std::size_t i = 0; i < x.size(); ++i) mean_[i % channels] += x[i] / rows;
    for (std::size_t i = 0; i < x.size(); ++i)
      variance_[i % channels] += std::pow(x[i] - mean_[i % channels], 2) / rows;
  }
  [[nodiscard]] Values channel_numbers(std::uint64_t seed, double middle, double spread) const {
    Values values = gaussian(shape_.channels, seed);
    for (double& value : values) value = middle + spread * std::tanh(value);
    return stored(DType::f32, values);
  }
  [[nodiscard]] Values restored(NormValues values) const {
    Harness harness(kCudaDevice);
    const ConstByteSpan bytes = encoded(values);
    const DeviceBuffer& buffer = values == NormValues::input ? encoded_input_ : encoded_;
    return to_values(DType::f32, harness.decode(spec_, buffer.read(0, bytes.size), DType::f32, line(shape_.elems()),
                                                {.seed = kNormSeed}));
  }
  [[nodiscard]] double inverse_deviation(std::size_t channel) const {
    return 1.0 / std::sqrt(variance_[channel] + kEpsilon);
  }
  [[nodiscard]] double normalized(double x, std::size_t channel) const {
    return (x - mean_[channel]) * inverse_deviation(channel);
  }
  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(shape_.elems()) * dtype_bytes(shape_.dtype);
  }
  [[nodiscard]] Normalization norm() const { return {reinterpret_cast<const float*>(norm_.data()), shape_.channels}; }
  [[nodiscard]] ConstByteSpan encoded(NormValues values) const {
    const DeviceBuffer& buffer = values == NormValues::input ? encoded_input_ : encoded_;
    return {buffer.data(), buffer.size(), kCudaDevice};
  }

  ChannelRows shape_;
  CodecSpec spec_;
  DeviceBuffer x_;
  DeviceBuffer gradient_;
  DeviceBuffer y_;
  DeviceBuffer encoded_;
  DeviceBuffer encoded_input_;  ///< by encode(), of x itself
  DeviceBuffer positive_;
  DeviceBuffer norm_;
  OwnedStream stream_{kCudaDevice};
  Values mean_;
  Values variance_;
  Values running_mean_;
  Values running_variance_;
  Values weight_;
  Values bias_;
};

/// `unit` is the size that errors are measured by.
void expect_near(const Values& found, const Values& expected, double tolerance, double unit, const char* what) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], tolerance * (unit + std::abs(expected[i]))) << what << " " << i;
  }
}

void check_layer(const ChannelRows& shape, int bits) {
  const CodecSpec spec = Rotated{.bits = Bits(bits)};
  SCOPED_TRACE(to_string(spec) + " of " + std::string(to_string(shape.dtype)) + ", " + std::to_string(shape.rows) +
               " rows of " + std::to_string(shape.channels));
  Layer layer(shape, spec);
  layer.forward(/*plain=*/true);
  const Values normal = layer.outputs();
  layer.forward();

  Harness harness(kCudaDevice);
  ASSERT_EQ(layer.encoding(), harness.encode(spec, dense(shape.dtype, normal), {.seed = kNormSeed}));
  const double rounding = 4.0 * roundoff(shape.dtype) + 1e-5;
  const Values x = layer.inputs();
  const Values y = layer.outputs();
  Values expected(x.size());
  Bytes plane(x.size() / 8);
  for (std::size_t i = 0; i < x.size(); ++i) {
    expected[i] = layer.affine(x[i], i % static_cast<std::size_t>(shape.channels));
    if (y[i] > 0.0) plane[i / 8] |= std::byte{1} << (i % 8);
  }
  expect_near(y, expected, rounding, 1.0, "y");
  expect_near(layer.running_mean(), layer.expected_running_mean(), 1e-5, 1.0, "running mean");
  expect_near(layer.running_variance(), layer.expected_running_variance(), 1e-5, 1.0, "running variance");
  ASSERT_EQ(layer.plane(), plane);

  for (const bool with_mask : {false, true}) {
    // A decoded number is rounded to the type of the target before it is scaled.
    expect_near(layer.decoded(with_mask), layer.expected_outputs(with_mask), 2.0 * rounding, 4.0, "decoded");
    for (const NormValues values : {NormValues::normal, NormValues::input}) {
      const Layer::Gradients found = layer.backward(with_mask, values);
      const Layer::Gradients wanted = layer.expected(with_mask, values);
      const double sums = std::sqrt(static_cast<double>(shape.rows));
      expect_near(found.weight, wanted.weight, 1e-3, sums, "weight");
      expect_near(found.bias, wanted.bias, 1e-5, sums, "bias");
      expect_near(found.x, wanted.x, 2.0 * rounding + 1e-3, 4.0, "x");
      ASSERT_EQ(found.weight, layer.backward(with_mask, values).weight);
    }
  }
}

class FusedBatchNorm : public CudaTest {};

TEST_F(FusedBatchNorm, does_what_the_formula_says) {
  for (const std::int64_t channels : {8, 24, 64, 256, 1000, 1024, 1280, 2048, 2056}) {
    for (const std::int64_t rows : {1, 3, 300}) check_layer({rows, channels, DType::bf16}, 2);
  }
}

TEST_F(FusedBatchNorm, takes_every_width_and_type) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (int bits = 1; bits <= 4; ++bits) check_layer({517, 96, dtype}, bits);
  }
}

/// Whether exactly the elements of `channel` are infinite or NaN.
void expect_poisoned(const Values& values, std::size_t channels, std::size_t channel) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::isfinite(values[i]), i % channels != channel) << values[i] << " at " << i;
  }
}

// Loss scaling relies on it: a step with such a number must be seen, and skipped.
TEST_F(FusedBatchNorm, keeps_what_is_not_finite) {
  constexpr std::size_t kChannels = 256;
  constexpr std::size_t kChannel = 17;
  constexpr std::size_t kElement = 3 * kChannels + kChannel;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const double value : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + ", " + std::to_string(value));
      Layer layer({64, kChannels, dtype}, Rotated{.bits = Bits(2)});
      layer.set_gradient(kElement, value);
      layer.forward();
      const Layer::Gradients gradients = layer.backward(/*with_mask=*/false, NormValues::normal);
      expect_poisoned(gradients.x, kChannels, kChannel);
      expect_poisoned(gradients.bias, kChannels, kChannel);
      layer.set_input(kElement, value);
      layer.forward();
      expect_poisoned(layer.outputs(), kChannels, kChannel);
      expect_poisoned(layer.running_variance(), kChannels, kChannel);
    }
  }
}

TEST_F(FusedBatchNorm, sums_over_many_rows) {
  check_layer({200'003, 64, DType::bf16}, 2);
  check_layer({20'011, 520, DType::bf16}, 2);
  check_layer({6'000, 2048, DType::f32}, 2);
}

/// Row norms of what decode() gives, into `out`, with weights of type `parameters`.
void check_row_norm(std::int64_t rows, std::int64_t channels, DType out, DType parameters, bool with_mean) {
  SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(channels) + " to " + std::string(to_string(out)) +
               " with " + std::string(to_string(parameters)));
  const CodecSpec spec = Rotated{.bits = Bits(2)};
  const ChannelRows shape{rows, channels, out};
  Harness harness(kCudaDevice);
  const Bytes encoded = harness.encode(spec, dense(DType::bf16, gaussian(shape.elems(), 3)), {.seed = kNormSeed});
  const Values x =
      to_values(DType::f32, harness.decode(spec, encoded, DType::f32, line(shape.elems()), {.seed = kNormSeed}));
  const auto on_device = [](DType dtype, const Values& values) {
    const Bytes elements = to_bytes(dtype, values);
    DeviceBuffer buffer(kCudaDevice, elements.size());
    buffer.write(0, elements);
    return buffer;
  };
  const Values mean = stored(DType::f32, gaussian(rows, 4));
  const Values deviation = stored(DType::f32, gaussian(rows, 5));
  const Values weight = stored(parameters, gaussian(channels, 6));
  const Values bias = stored(parameters, gaussian(channels, 7));
  DeviceBuffer src(kCudaDevice, encoded.size());
  src.write(0, encoded);
  const DeviceBuffer means = on_device(DType::f32, mean);
  const DeviceBuffer deviations = on_device(DType::f32, deviation);
  const DeviceBuffer weights = on_device(parameters, weight);
  const DeviceBuffer biases = on_device(parameters, bias);
  DeviceBuffer y(kCudaDevice, x.size() * dtype_bytes(out));
  OwnedStream stream(kCudaDevice);
  decode_row_normalized(spec, shape, {src.data(), src.size(), kCudaDevice},
                        {.mean = with_mean ? reinterpret_cast<const float*>(means.data()) : nullptr,
                         .inverse_deviation = reinterpret_cast<const float*>(deviations.data()),
                         .weight = weights.data(),
                         .bias = with_mean ? biases.data() : nullptr,
                         .parameters = parameters},
                        y.data(), Seed(kNormSeed), stream.get());
  stream.synchronize();
  Values expected(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t row = i / static_cast<std::size_t>(channels);
    const std::size_t channel = i % static_cast<std::size_t>(channels);
    expected[i] =
        (x[i] - (with_mean ? mean[row] : 0.0)) * deviation[row] * weight[channel] + (with_mean ? bias[channel] : 0.0);
  }
  expect_near(to_values(out, y.read(0, y.size())), expected, 8.0 * roundoff(out) + 1e-5, 4.0, "y");
}

TEST_F(FusedBatchNorm, rows_are_normalised_while_they_are_decoded) {
  for (const DType out : {DType::f32, DType::f16, DType::bf16}) {
    for (const DType parameters : {DType::f32, out}) {
      check_row_norm(37, 768, out, parameters, true);
      check_row_norm(301, 40, out, parameters, false);
    }
  }
  check_row_norm(5000, 1024, DType::bf16, DType::bf16, true);
  check_row_norm(3, 12'296, DType::bf16, DType::f32, true);
}

TEST(BatchNormCalls, refuses_what_it_does_not_take) {
  const ChannelRows shape{16, 64, DType::bf16};
  EXPECT_FALSE(can_fuse_batch_norm(Affine{.bits = Bits(2)}, shape, kCudaDevice));
  EXPECT_FALSE(can_fuse_batch_norm(Rotated{.bits = Bits(2), .mask_plane = true}, shape, kCudaDevice));
  EXPECT_FALSE(can_fuse_batch_norm(Rotated{.bits = Bits(2)}, shape, Device::cpu()));
  EXPECT_FALSE(can_fuse_batch_norm(Rotated{.bits = Bits(2)}, {16, 60, DType::bf16}, kCudaDevice));
  EXPECT_FALSE(can_fuse_batch_norm(Rotated{.bits = Bits(2)}, {std::int64_t{1} << 28, 16, DType::bf16}, kCudaDevice));
  test::expect_error(
      ErrorCode::invalid_spec,
      "decode_normalized: 16 rows of 64 channels of bf16 as 'rotated:2' (allowed: rotated in groups of 256 without a "
      "mask plane, on CUDA, multiples of 8 channels up to 32768, below 4294967296 elements of f32, f16 or bf16)",
      [&] { decode_normalized(Rotated{.bits = Bits(2)}, shape, {}, {}, nullptr, nullptr, Seed(1), Stream()); });
}

}  // namespace
}  // namespace actzip::testing
