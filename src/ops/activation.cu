// Activations on CUDA: an encoding whose source also computes them, and decodings whose target is a gradient.
#include <cstdint>
#include <type_traits>

#include "cuda/launch.cuh"
#include "cuda/rotated_kernels.cuh"
#include "dispatch.hpp"
#include "ops/backend.hpp"

namespace actzip::cuda {
namespace {

/// How an activation is computed: value and slope together, since they share the costly part.
struct ValueAndSlope {
  float value;
  float slope;
};

/// Below the rounding of 16-bit types, at a third of the instructions.
struct Fast {
  [[nodiscard]] __device__ static float exp(float x) { return __expf(x); }
  [[nodiscard]] __device__ static float divide(float a, float b) { return __fdividef(a, b); }

  /// The share of a normal distribution below x, by a polynomial in 1 / (1 + p |x|) times its density. Its error is
  /// below 2^-23.
  [[nodiscard]] __device__ static float normal_share(float x, float density) {
    const float t = divide(1.0F, fmaf(fabsf(x), 0.2316419F, 1.0F));
    float sum = fmaf(t, 1.330274429F, -1.821255978F);
    sum = fmaf(sum, t, 1.781477937F);
    sum = fmaf(sum, t, -0.356563782F);
    sum = fmaf(sum, t, 0.319381530F);
    const float tail = density * sum * t;
    return x < 0.0F ? tail : 1.0F - tail;
  }
  [[nodiscard]] __device__ static float share_in_slope(float x, float density) { return normal_share(x, density); }
};

/// As exact as CUDA's functions. In a slope, where it is not multiplied, the share may have an error of 2^-23 itself,
/// at half the instructions.
struct Exact {
  [[nodiscard]] __device__ static float exp(float x) { return expf(x); }
  [[nodiscard]] __device__ static float divide(float a, float b) { return a / b; }
  [[nodiscard]] __device__ static float normal_share(float x, float /*density*/) { return normcdff(x); }
  [[nodiscard]] __device__ static float share_in_slope(float x, float /*density*/) {
    constexpr float kRootOfHalf = 0.7071067812F;
    return fmaf(erff(x * kRootOfHalf), 0.5F, 0.5F);
  }
};

template <class Functions>
[[nodiscard]] __device__ __forceinline__ ValueAndSlope gelu(float x) {
  constexpr float kInverseRootOfTwoPi = 0.3989422804F;
  const float density = kInverseRootOfTwoPi * Functions::exp(-0.5F * x * x);
  return {x * Functions::normal_share(x, density), fmaf(x, density, Functions::share_in_slope(x, density))};
}

/// x * s(u), s being the sigmoid: slope of u given.
template <class Functions>
[[nodiscard]] __device__ __forceinline__ ValueAndSlope gated(float x, float u, float u_slope) {
  const float share = Functions::divide(1.0F, 1.0F + Functions::exp(-u));
  return {x * share, share * fmaf(x * (1.0F - share), u_slope, 1.0F)};
}

template <class Functions>
[[nodiscard]] __device__ __forceinline__ ValueAndSlope gelu_tanh(float x) {
  constexpr float kTwiceRootOfTwoOverPi = 1.5957691216F;  // (1 + tanh(u)) / 2 is the sigmoid of 2 u
  constexpr float kCubic = 0.044715F;
  const float square = x * x;
  return gated<Functions>(x, kTwiceRootOfTwoOverPi * x * fmaf(kCubic, square, 1.0F),
                          kTwiceRootOfTwoOverPi * fmaf(3.0F * kCubic, square, 1.0F));
}

template <class Functions>
[[nodiscard]] __device__ __forceinline__ ValueAndSlope value_and_slope(Activation activation, float x) {
  switch (activation) {
    case Activation::gelu: return gelu<Functions>(x);
    case Activation::gelu_tanh: return gelu_tanh<Functions>(x);
    case Activation::silu: break;
  }
  return gated<Functions>(x, x, 1.0F);
}

template <DType Type>
using FunctionsFor = std::conditional_t<Type == DType::f32, Exact, Fast>;

/// The source of an encoding: what was loaded is encoded as it is, and the activation of it stored.
template <DType Type>
class ActivatingSource : public DenseAccess<Storage<Type>> {
 public:
  ActivatingSource(const void* x, void* y, Activation activation)
      : DenseAccess<Storage<Type>>(x, {}), y_(y, {}), activation_(activation) {}

  [[nodiscard]] __device__ Chunk<Storage<Type>> after_load(std::int64_t first, int offset,
                                                           const Chunk<Storage<Type>>& x) const {
    float values[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      values[i] = value_and_slope<FunctionsFor<Type>>(activation_, widen<Type>(x, i)).value;
    }
    y_.store(first + offset, kChunk, rounded<Type>(values));
    return x;
  }

 private:
  DenseAccess<Storage<Type>> y_;
  Activation activation_;
};

/// What a gradient is multiplied by on its way to an activation's input.
template <DType Type>
struct ActivationSlope {
  Activation activation;
  [[nodiscard]] __device__ float of(float x) const { return value_and_slope<FunctionsFor<Type>>(activation, x).slope; }
};

/// The same to the other factor of a product.
struct OtherFactor {
  float scale;
  [[nodiscard]] __device__ float of(float x) const { return scale * x; }
};

/// The target of a decoding: a gradient times the slope at what was decoded.
template <DType Type, class Slope>
class GradientTarget {
 public:
  static constexpr bool kDense = true;
  static constexpr int kBlocksOfMultiprocessor = 8;  ///< for the gradient in registers

  GradientTarget(void* x_gradient, const void* y_gradient, Slope slope)
      : x_gradient_(x_gradient, {}), y_gradient_(y_gradient, {}), slope_(slope) {}

  __device__ void store_full(std::int64_t first, int offset, const Chunk<Storage<Type>>& x) const {
    x_gradient_.store_full(first, offset, gradient(first + offset, x));
  }
  __device__ void store(std::int64_t first, int /*count*/, const Chunk<Storage<Type>>& x) const {
    x_gradient_.store(first, kChunk, gradient(first, x));
  }

 private:
  [[nodiscard]] __device__ Chunk<Storage<Type>> gradient(std::int64_t first, const Chunk<Storage<Type>>& x) const {
    const Chunk<Storage<Type>> above = y_gradient_.load(first, kChunk);
    float values[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) values[i] = widen<Type>(above, i) * slope_.of(widen<Type>(x, i));
    return rounded<Type>(values);
  }

  DenseAccess<Storage<Type>> x_gradient_;
  DenseAccess<Storage<Type>> y_gradient_;
  Slope slope_;
};

template <DType Type, int Bits, class Slope>
void decode_to_gradient(const Rotated& spec, const codec::DecodeJob& job, const void* y_gradient, Slope slope) {
  using Target = GradientTarget<Type, Slope>;
  launch(rotated_decode_kernel<Type, Bits, ops::kGroup, Target>, tile_count(job.geometry), *job.stream,
         rotated_buffer(spec, job, job.src), Target(job.dst.data, y_gradient, slope), KernelSeed(job.seed));
}

}  // namespace

bool has_fused_operators() noexcept { return true; }

void encode_activated(const Rotated& spec, Activation activation, const codec::EncodeJob& job, void* y) {
  with_type_and_bits<format::kMaxRotatedBits>(job.src.dtype, spec.bits, [&]<DType Type, int Bits>() {
    using Source = ActivatingSource<Type>;
    launch(rotated_encode_kernel<Type, Bits, ops::kGroup, Source>, tile_count(job.geometry), *job.stream,
           Source(job.src.data, y, activation), rotated_buffer(spec, job, job.dst), KernelSeed(job.seed),
           Padding(job.dst, job.sections));
  });
}

void activation_backward(const Rotated& spec, Activation activation, const codec::DecodeJob& job,
                         const void* y_gradient) {
  with_type_and_bits<format::kMaxRotatedBits>(job.dst.dtype, spec.bits, [&]<DType Type, int Bits>() {
    decode_to_gradient<Type, Bits>(spec, job, y_gradient, ActivationSlope<Type>{activation});
  });
}

void product_backward(const Rotated& spec, float scale, const codec::DecodeJob& job, const void* y_gradient) {
  with_type_and_bits<format::kMaxRotatedBits>(job.dst.dtype, spec.bits, [&]<DType Type, int Bits>() {
    decode_to_gradient<Type, Bits>(spec, job, y_gradient, OtherFactor{scale});
  });
}

}  // namespace actzip::cuda
