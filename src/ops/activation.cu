// Activations on CUDA: an encoding whose source also computes the activation, and decodings whose target is a gradient.
#include <cstdint>
#include <type_traits>

#include "cuda/launch.cuh"
#include "cuda/rotated_kernels.cuh"
#include "dispatch.hpp"
#include "math/activation.hpp"
#include "ops/backend.hpp"

namespace actzip::cuda {
namespace {

/// Functions whose error is below the rounding of 16-bit types, at a third of the instructions.
struct Fast {
  [[nodiscard]] __device__ static float exp(float x) { return __expf(x); }
  [[nodiscard]] __device__ static float divide(float a, float b) { return __fdividef(a, b); }

  [[nodiscard]] __device__ static float normal_share(float x, float density) {
    return math::normal_share<Fast>(x, density);
  }
  [[nodiscard]] __device__ static float share_in_slope(float x, float density) { return normal_share(x, density); }
};

/// Functions as exact as CUDA's own. In a slope the share is not multiplied, so an error of 2^-23 is acceptable, at
/// half the instructions.
struct Exact {
  [[nodiscard]] __device__ static float exp(float x) { return expf(x); }
  [[nodiscard]] __device__ static float divide(float a, float b) { return a / b; }
  [[nodiscard]] __device__ static float normal_share(float x, float /*density*/) { return normcdff(x); }
  [[nodiscard]] __device__ static float share_in_slope(float x, float /*density*/) {
    constexpr float kRootOfHalf = 0.7071067812F;
    return fmaf(erff(x * kRootOfHalf), 0.5F, 0.5F);
  }
};

template <DType Type>
using FunctionsFor = std::conditional_t<Type == DType::f32, Exact, Fast>;

/// Calls body.operator()<Function>(). A chunk chooses once, instead of each element.
template <class Body>
__device__ __forceinline__ void with_activation(Activation activation, Body&& body) {
  switch (activation) {
    case Activation::gelu: return body.template operator()<Activation::gelu>();
    case Activation::gelu_tanh: return body.template operator()<Activation::gelu_tanh>();
    case Activation::silu: return body.template operator()<Activation::silu>();
  }
}

/// The source of an encoding. Elements are encoded as they are loaded, and their activation is stored.
template <DType Type>
class ActivatingSource : public DenseAccess<Storage<Type>> {
 public:
  ActivatingSource(const void* x, void* y, Activation activation)
      : DenseAccess<Storage<Type>>(x, {}), y_(y, {}), activation_(activation) {}

  [[nodiscard]] __device__ Chunk<Storage<Type>> after_load(std::int64_t first, int offset,
                                                           const Chunk<Storage<Type>>& x) const {
    float values[kChunk];
    with_activation(activation_, [&]<Activation Function>() {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        values[i] = math::value_and_slope<FunctionsFor<Type>>(Function, widen<Type>(x, i)).value;
      }
    });
    y_.store(first + offset, kChunk, rounded<Type>(values));
    return x;
  }

 private:
  DenseAccess<Storage<Type>> y_;
  Activation activation_;
};

/// The factor of the gradient of an activation's input.
template <DType Type>
struct ActivationSlope {
  Activation activation;
  __device__ void apply(float (&values)[kChunk]) const {
    with_activation(activation, [&]<Activation Function>() {
#pragma unroll
      for (float& x : values) x = math::value_and_slope<FunctionsFor<Type>>(Function, x).slope;
    });
  }
};

/// The factor of the gradient of one factor of a product: `scale` times the other one.
struct OtherFactor {
  float scale;
  __device__ void apply(float (&values)[kChunk]) const {
#pragma unroll
    for (float& x : values) x *= scale;
  }
};

/// The target of a decoding: stores the gradient times the slope at each decoded value.
template <DType Type, class Slope>
class GradientTarget {
 public:
  static constexpr bool kDense = true;
  static constexpr int kBlocksOfMultiprocessor = Type == DType::f32 ? 5 : 6;  ///< few: gradients need registers

  GradientTarget(void* x_gradient, const void* y_gradient, Slope slope)
      : x_gradient_(x_gradient, {}), y_gradient_(y_gradient, {}), slope_(slope) {}

  using Ahead = Chunk<Storage<Type>>;  ///< of the gradient from above

  [[nodiscard]] __device__ Ahead load_ahead(std::int64_t first) const { return y_gradient_.load(first, kChunk); }

  __device__ void store_full(std::int64_t first, int offset, const Chunk<Storage<Type>>& x, const Ahead& above) const {
    x_gradient_.store_full(first, offset, gradient(x, above));
  }
  __device__ void store(std::int64_t first, int /*count*/, const Chunk<Storage<Type>>& x) const {
    x_gradient_.store(first, kChunk, gradient(x, load_ahead(first)));
  }

 private:
  [[nodiscard]] __device__ Chunk<Storage<Type>> gradient(const Chunk<Storage<Type>>& x,
                                                         const Chunk<Storage<Type>>& above) const {
    float values[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) values[i] = widen<Type>(x, i);
    slope_.apply(values);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) values[i] *= widen<Type>(above, i);
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
  with_type_and_bits(job.src.dtype, spec, [&]<DType Type, int Bits>() {
    using Source = ActivatingSource<Type>;
    launch(rotated_encode_kernel<Type, Bits, ops::kGroup, Source>, tile_count(job.geometry), *job.stream,
           Source(job.src.data, y, activation), rotated_buffer(spec, job, job.dst), KernelSeed(job.seed),
           Padding(job.dst, job.sections));
  });
}

void activation_backward(const Rotated& spec, Activation activation, const codec::DecodeJob& job,
                         const void* y_gradient) {
  with_type_and_bits(job.dst.dtype, spec, [&]<DType Type, int Bits>() {
    decode_to_gradient<Type, Bits>(spec, job, y_gradient, ActivationSlope<Type>{activation});
  });
}

void product_backward(const Rotated& spec, float scale, const codec::DecodeJob& job, const void* y_gradient) {
  with_type_and_bits(job.dst.dtype, spec, [&]<DType Type, int Bits>() {
    decode_to_gradient<Type, Bits>(spec, job, y_gradient, OtherFactor{scale});
  });
}

}  // namespace actzip::cuda
