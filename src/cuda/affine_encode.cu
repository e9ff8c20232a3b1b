// Encodes `affine` on CUDA. A group occupies group/32 lanes, with four chunks in each.
#include <cstdint>

#include "cuda/affine_buffer.cuh"
#include "cuda/backend.hpp"
#include "cuda/chunk.cuh"
#include "cuda/launch.cuh"
#include "cuda/segment_bits.cuh"
#include "cuda/staged.cuh"
#include "cuda/uniform.cuh"
#include "cuda/values.cuh"
#include "dispatch.hpp"
#include "math/affine.hpp"

namespace actzip::cuda {
namespace {

/// `places` is a FullTile or a LaneGroup.
template <DType Type, int Bits, bool Noisy, class Access, class Places>
__device__ __forceinline__ void encode_tile(const Access& src, const AffineBuffer& dst, const Places& places,
                                            math::HashKey key, std::int64_t tile, std::uint32_t lane) {
  const LaneChunks numbers(dst.geometry.group, lane);
  Chunk<Storage<Type>> chunks[kChunksPerLane];
#pragma unroll
  for (int j = 0; j < kChunksPerLane; ++j) {
    const ChunkPlace at = places.at(numbers.number(j));
    chunks[j] = src.load(at.first, at.count);
  }
  Extremes<Type> extremes;
#pragma unroll
  for (int j = 0; j < kChunksPerLane; ++j) {
    const int count = places.at(numbers.number(j)).count;
    if (count < kChunk) repeat_first(chunks[j], count);
    if (count > 0) extremes.take(chunks[j]);
  }
  extremes.reduce(numbers.lanes());
  const float floor = Noisy ? math::kAffineNoFloor : dst.floor;  // a compile-time constant if there is none, at no cost
  const int bits = Bits != kRunTimeBits ? Bits : places.at(numbers.number(0)).bits;
  const math::AffineGroup group =
      math::affine_group(math::affine_inverse_levels(bits), extremes.least(), extremes.most(), dst.stats, floor);
  if (!places.exists()) return;
  const std::int64_t g = places.at(numbers.number(0)).g;
  if (numbers.is_first_lane()) store_stats(dst.stats_section, g, dst.stats, {group.min, group.step});

  const TileNoise noise(key, tile);
#pragma unroll
  for (int j = 0; j < kChunksPerLane; ++j) {
    std::uint32_t quads[2];
#pragma unroll
    for (std::uint32_t q = 0; q < 2; ++q) {
      std::uint32_t steps[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) steps[i] = math::affine_steps<Noisy>(widen<Type>(chunks[j], 4 * q + i), group);
      quads[q] = four_codes<Noisy>(steps, Noisy ? noise.of_quad(2 * numbers.number(j) ^ q) : 0U);
    }
    with_width<Bits, Affine::kMostBits>(bits, [&]<int Width>() {
      std::uint64_t packed = pack_bytes<Width>(quads[0], quads[1]);
      packed &= group.keep | static_cast<std::uint64_t>(group.keep) << 32;
      const ChunkPlace at = places.at(numbers.number(j));
      if (at.count < kChunk) packed &= at.count <= 0 ? 0 : (std::uint64_t{1} << (at.count * Width)) - 1;
      store_codes<Width>(at.codes, packed, at.room);
    });
  }
}

/// Any tile, with its elements staged unless they are dense.
template <DType Type, int Bits, bool Noisy, class Access>
__device__ __forceinline__ void encode_any_tile(const Access& src, const AffineBuffer& dst, math::HashKey key,
                                                std::int64_t tile, std::uint32_t lane) {
  with_source<Storage<Type>>(src, dst.geometry, tile, [&](const auto& elements) {
    encode_tile<Type, Bits, Noisy>(elements, dst, LaneGroup<Bits>(dst, tile, lane), key, tile, lane);
  });
}

/// The same, not inlined: inside a kernel for full tiles it would cost their code registers.
template <DType Type, int Bits, bool Noisy, class Access>
__device__ __noinline__ void encode_ragged_tile(const Access& src, const AffineBuffer& dst, math::HashKey key,
                                                std::int64_t tile, std::uint32_t lane) {
  encode_any_tile<Type, Bits, Noisy>(src, dst, key, tile, lane);
}

template <DType Type, int Bits, bool Noisy, class Access>
__global__ void __launch_bounds__(kThreads, sizeof(Storage<Type>) == 4 ? 6
                                            : Bits == kRunTimeBits     ? 10
                                                                       : 12)
    affine_encode_kernel(const __grid_constant__ Access src, const __grid_constant__ AffineBuffer dst,
                         const __grid_constant__ KernelSeed seed, const __grid_constant__ Padding padding) {
  padding.zero();
  if constexpr (Bits == kRunTimeBits) dst.table.zero_rest();
  const math::HashKey key = seed.key();
  on_tile(dst.tiles, [&](std::int64_t tile, std::uint32_t lane) {
    if constexpr (Access::kDense) {
      const TileRun at = tile_run<Bits>(dst, tile);
      if (at.whole && (tile + 1) * kTile <= dst.geometry.elems) {
        return encode_tile<Type, Bits, Noisy>(src, dst, FullTile(dst, at.run, tile), key, tile, lane);
      }
      encode_ragged_tile<Type, Bits, Noisy>(src, dst, key, tile, lane);
    } else {
      encode_any_tile<Type, Bits, Noisy>(src, dst, key, tile, lane);
    }
  });
}

}  // namespace

void encode(const Affine& spec, const codec::EncodeJob& job) {
  const AffineBuffer buffer = affine_buffer(spec, job, job.dst);
  if (job.sections.has_segment_bits()) place_segments(buffer.table, job);
  with_float(job.src.dtype, [&]<DType Type>() {
    with_bits(spec, job.sections.has_segment_bits(), [&]<int Bits>() {
      with_bool(spec.rounding != Rounding::nearest, [&]<bool Noisy>() {
        with_access<Storage<Type>>(job.src.data, job.src.order, job.geometry.flat(), [&](auto access) {
          launch(affine_encode_kernel<Type, Bits, Noisy, decltype(access)>, tile_count(job.geometry), *job.stream,
                 access, buffer, KernelSeed(job.seed), Padding(job.dst, job.sections));
        });
      });
    });
  });
}

}  // namespace actzip::cuda
