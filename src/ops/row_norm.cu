// Norms over rows on CUDA: a decoding whose target computes their result.
#include <cstdint>

#include "cuda/rotated_kernels.cuh"
#include "dispatch.hpp"
#include "ops/backend.hpp"
#include "ops/channel_access.cuh"

namespace actzip::cuda {
namespace {

struct RowMap {
  static constexpr int kBlocksOfMultiprocessor = 8;  ///< few, because the channels' numbers need registers
  struct Nothing {};
  template <DType Type>
  using Ahead = Nothing;

  RowNorm norm;

  template <DType Type>
  [[nodiscard]] __device__ Nothing load_ahead(std::int64_t /*first*/) const {
    return {};
  }

  template <DType Type>
  [[nodiscard]] __device__ Chunk<Storage<Type>> of(const RowPlace& at, const Chunk<Storage<Type>>& x,
                                                   Nothing /*ahead*/) const {
    const float inverse_deviation = __ldg(norm.inverse_deviation + at.row);
    const float offset = norm.mean != nullptr ? -__ldg(norm.mean + at.row) * inverse_deviation : 0.0F;
    float values[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) values[i] = fmaf(widen<Type>(x, i), inverse_deviation, offset);
    if (norm.weight != nullptr) {
      float weight[kChunk];
      load_parameters<Type>(norm.weight, at.channel, weight);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) values[i] *= weight[i];
    }
    if (norm.bias != nullptr) {
      float bias[kChunk];
      load_parameters<Type>(norm.bias, at.channel, bias);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) values[i] += bias[i];
    }
    return rounded<Type>(values);
  }

 private:
  template <DType Type>
  __device__ void load_parameters(const void* numbers, std::uint32_t channel, float (&out)[kChunk]) const {
    if (norm.parameters == DType::f32) return load_channels(static_cast<const float*>(numbers), channel, out);
    const auto chunk = load_whole<Type>(numbers, channel);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) out[i] = widen<Type>(chunk, i);
  }
};

}  // namespace

void decode_row_normalized(const Rotated& spec, const codec::DecodeJob& job, std::int64_t channels,
                           const RowNorm& norm) {
  with_type_and_bits(job.dst.dtype, spec, [&]<DType Type, int Bits>() {
    using Target = MappedTarget<Type, RowMap>;
    launch(rotated_decode_kernel<Type, Bits, ops::kGroup, Target>, tile_count(job.geometry), *job.stream,
           rotated_buffer(spec, job, job.src), Target(job.dst.data, channels, RowMap{norm}), KernelSeed(job.seed));
  });
}

}  // namespace actzip::cuda
