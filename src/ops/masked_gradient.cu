// Gradients behind a mask on CUDA: a lane processes eight elements and one byte of the mask.
#include <cstdint>

#include "cuda/chunk.cuh"
#include "cuda/launch.cuh"
#include "cuda/values.cuh"
#include "dispatch.hpp"
#include "ops/backend.hpp"

namespace actzip::cuda {
namespace {

/// Writes the gradient where a bit is 1 and 0 elsewhere. If Scaled, it writes the gradient times `factor` or times 0.
template <DType Type, bool Scaled>
__global__ void __launch_bounds__(kThreads)
    masked_gradient_kernel(const std::byte* bits, const __grid_constant__ DenseAccess<Storage<Type>> from,
                           const __grid_constant__ DenseAccess<Storage<Type>> to, std::int64_t elems, float factor) {
  on_tile(format::ceil_div(elems, kTile), [&](std::int64_t tile, int lane) {
    Chunk<Storage<Type>> chunks[kChunksPerLane];
    std::uint32_t masks[kChunksPerLane];
#pragma unroll
    for (int j = 0; j < kChunksPerLane; ++j) {
      const std::int64_t first = tile * kTile + (j * kWarp + lane) * kChunk;
      chunks[j] = from.load(first, count_from(first, elems));
      masks[j] = first < elems ? static_cast<std::uint32_t>(bits[first >> 3]) : 0U;
    }
#pragma unroll
    for (int j = 0; j < kChunksPerLane; ++j) {
      if constexpr (Scaled) {
        float values[kChunk];
#pragma unroll
        for (int i = 0; i < kChunk; ++i) {
          values[i] = widen<Type>(chunks[j], i) * ((masks[j] & (1U << i)) != 0 ? factor : 0.0F);
        }
        chunks[j] = rounded<Type>(values);
      } else {
        keep_masked<Type>(chunks[j], masks[j]);
      }
      store_tile_chunk(to, tile, tile * kTile + (j * kWarp + lane) * kChunk, elems, chunks[j]);
    }
  });
}

template <bool Scaled>
void masked_gradient(const ops::MaskedGradientJob& job, float factor) {
  with_float(job.elements.dtype, [&]<DType Type>() {
    const DenseAccess<Storage<Type>> from(job.y_gradient, {});
    const DenseAccess<Storage<Type>> to(job.x_gradient, {});
    launch(masked_gradient_kernel<Type, Scaled>, format::ceil_div(job.elements.count, kTile), *job.stream, job.mask,
           from, to, job.elements.count, factor);
  });
}

}  // namespace

void relu_backward(const ops::MaskedGradientJob& job) { masked_gradient<false>(job, 1.0F); }

void dropout_backward(const ops::MaskedGradientJob& job, float factor) { masked_gradient<true>(job, factor); }

}  // namespace actzip::cuda
