// `affine` on CUDA. Encoding: a group lies in group/32 lanes, 32 elements each, as four chunks that interleave over the
// lanes, so that every load of a warp is one run of memory. Decoding needs no reduction: a warp's chunks are one run.
#include <cstdint>

#include "cuda/backend.hpp"
#include "cuda/chunk.cuh"
#include "cuda/launch.cuh"
#include "cuda/values.cuh"
#include "dispatch.hpp"
#include "format/bits.hpp"
#include "math/affine.hpp"

namespace actzip::cuda {
namespace {

/// What the kernels know of the buffer.
struct AffineBuffer {
  std::byte* data;
  std::int64_t codes;          ///< offset of the codes
  std::int64_t segment_bytes;  ///< of one segment's codes
  format::Geometry geometry;
  StatsType stats;
};

template <class Job>
AffineBuffer affine_buffer(const Affine& spec, const Job& job, const std::byte* data) {
  const format::Geometry geometry = format::flattened(job.geometry);
  const std::int64_t run = geometry.segments == 1 ? job.sections.codes_used : job.sections.code_words * 4;
  return {const_cast<std::byte*>(data), job.sections.codes, run, geometry, spec.stats};
}

/// One chunk: its elements and its codes. In a full tile, one that a dense tensor fills, all of it exists and the
/// formulas are short.
struct ChunkPlace {
  std::int64_t g;      ///< its group
  std::int64_t first;  ///< its first element
  int count;           ///< how many of its eight exist; may be negative
  std::byte* codes;
  std::int64_t room;  ///< bytes from `codes` to the end of the segment's run; not positive if there is no group
};

/// `inside`: the first of its padded elements, counted in the tile.
template <int Bits, bool Full>
__device__ __forceinline__ ChunkPlace chunk_place(const AffineBuffer& buffer, std::int64_t tile, int inside) {
  const format::Geometry& geometry = buffer.geometry;
  const std::int64_t padded = tile * kTile + inside;
  const int shift = 31 - __clz(geometry.group);
  const std::int64_t g = tile * (kTile >> shift) + (inside >> shift);
  std::byte* const codes = buffer.data + buffer.codes;
  if constexpr (Full) return {g, padded, kChunk, codes + (padded >> 3) * Bits, Bits};
  if (g >= geometry.groups()) return {g, 0, 0, nullptr, 0};
  const format::GroupRange range = group_range_of(geometry, g);
  const int position = static_cast<int>(padded) & (geometry.group - 1);
  const std::int64_t byte = ((range.number * geometry.group + position) >> 3) * Bits;
  return {g, range.first + position, range.count - position, codes + range.segment * buffer.segment_bytes + byte,
          buffer.segment_bytes - byte};
}

/// The noise of one chunk: a byte for each element.
struct ChunkNoise {
  std::uint32_t word[2];
  [[nodiscard]] __device__ std::uint32_t byte(int i) const { return __byte_perm(word[i / 4], 0, 0x4440 + i % 4); }
  /// As affine_quantize() takes it, by one instruction; `base` is kAffineNoise in a register.
  [[nodiscard]] __device__ std::uint32_t as_float(int i, std::uint32_t base) const {
    return __byte_perm(word[i / 4], base, 0x7440 + i % 4);
  }
};

/// `key` has the upper half of the tile's counters; `inside` is the chunk's first element, counted in the tile.
__device__ __forceinline__ ChunkNoise chunk_noise(math::HashKey key, std::int64_t tile, int inside) {
  const std::uint32_t counter = static_cast<std::uint32_t>(tile) * (kTile / 4) + static_cast<std::uint32_t>(inside) / 4;
  return {{math::hash_word(key, counter), math::hash_word(key, counter + 1)}};
}

__device__ __forceinline__ math::HashKey tile_key(math::HashKey key, std::int64_t tile) {
  return key.for_upper(static_cast<std::uint32_t>((tile * (kTile / 4)) >> 32));
}

template <DType Type, int Bits, bool Noisy, bool Full, class Access>
__device__ __forceinline__ void encode_tile(const Access& src, const AffineBuffer& dst, math::HashKey seed_key,
                                            std::int64_t tile, int lane) {
  const int lanes = dst.geometry.group / (kChunk * kChunksPerLane);  // a power of two
  const int sub = lane & (lanes - 1);
  const int first_inside = (lane - sub) * (kChunk * kChunksPerLane) + sub * kChunk;
  const auto inside = [&](int j) { return first_inside + j * lanes * kChunk; };

  Chunk<Storage<Type>> chunks[kChunksPerLane];
#pragma unroll
  for (int j = 0; j < kChunksPerLane; ++j) {
    const ChunkPlace at = chunk_place<Bits, Full>(dst, tile, inside(j));
    chunks[j] = src.load(at.first, at.count);
  }
  Extremes<Type> extremes;
#pragma unroll
  for (int j = 0; j < kChunksPerLane; ++j) {
    const int count = chunk_place<Bits, Full>(dst, tile, inside(j)).count;
    if (count < kChunk) repeat_first(chunks[j], count);
    if (count > 0) extremes.take(chunks[j]);
  }
  extremes.reduce(lanes);
  const math::AffineGroup group = math::affine_group<Bits>(extremes.least(), extremes.most(), dst.stats);
  const std::int64_t g = chunk_place<Bits, Full>(dst, tile, inside(0)).g;
  if (!Full && g >= dst.geometry.groups()) return;
  if (sub == 0) store_stats(dst.data, g, dst.stats, {group.min, group.step});

  const math::HashKey key = tile_key(seed_key, tile);
  const std::uint32_t noise_base = opaque(math::kAffineNoise);
#pragma unroll
  for (int j = 0; j < kChunksPerLane; ++j) {
    ChunkNoise noise = {};
    if constexpr (Noisy) noise = chunk_noise(key, tile, inside(j));
    std::uint32_t codes[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      codes[i] = math::affine_quantize<Noisy>(widen<Type>(chunks[j], i), group, noise.as_float(i, noise_base));
    }
    std::uint64_t packed = pack_bytes<Bits, math::kAffineCodeBit<Noisy> / 8>(codes);
    packed &= group.keep | static_cast<std::uint64_t>(group.keep) << 32;
    const ChunkPlace at = chunk_place<Bits, Full>(dst, tile, inside(j));
    if (at.count < kChunk) packed &= at.count <= 0 ? 0 : (std::uint64_t{1} << (at.count * Bits)) - 1;
    store_codes<Bits>(at.codes, packed, at.room);
  }
}

template <DType Type, int Bits, bool Noisy, class Access>
__global__ void __launch_bounds__(kThreads, kResidentBlocks<Storage<Type>>)
    affine_encode_kernel(const __grid_constant__ Access src, const __grid_constant__ AffineBuffer dst,
                         const __grid_constant__ KernelSeed seed, const __grid_constant__ Padding padding) {
  padding.zero();
  const math::HashKey key = seed.key();
  on_tile(tile_count(dst.geometry), [&](std::int64_t tile, int lane) {
    if (Access::kDense && (tile + 1) * kTile <= dst.geometry.elems) {
      encode_tile<Type, Bits, Noisy, Access::kDense>(src, dst, key, tile, lane);
    } else {
      encode_tile<Type, Bits, Noisy, false>(src, dst, key, tile, lane);
    }
  });
}

/// Byte `i` of `noise`, above it byte `i` of `codes`, which is below 128: its sign, 0, fills the rest.
__device__ __forceinline__ std::uint32_t noise_below_code(std::uint32_t codes, std::uint32_t noise, int i) {
  std::uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(codes), "r"(noise), "r"(0x8804 + 0x1111 * i));
  return result;
}

/// Eight elements of one group, decoded into registers.
template <int Bits, bool Dithered>
__device__ __forceinline__ void affine_decode_chunk(std::uint64_t packed, Stats stats, const ChunkNoise& noise,
                                                    float (&values)[kChunk]) {
  if constexpr (Dithered && Bits < 8) {
    // Code and noise come together by one byte permute; the noise is inverted because it is subtracted. The factor is
    // opaque because a shift would go to the pipe that has the most to do already.
    const std::uint32_t two = opaque(2U);
#pragma unroll
    for (int quad = 0; quad < 2; ++quad) {
      const std::uint32_t codes = spread_bytes<Bits>(static_cast<std::uint32_t>(packed >> (4 * Bits * quad)));
      const std::uint32_t inverted = ~noise.word[quad];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t both = noise_below_code(codes, inverted, i);  // 256 * code + 255 - noise
        values[4 * quad + i] = math::affine_value(both * two + (math::kAffineZero - 255U), stats.first, stats.second);
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      values[i] =
          math::affine_dequantize<Dithered>(format::unpack<Bits>(packed, i), stats.first, stats.second, noise.byte(i));
    }
  }
}

template <DType Type, int Bits, bool Dithered, bool Full, class Access>
__device__ __forceinline__ void decode_tile(const AffineBuffer& src, const Access& dst, math::HashKey seed_key,
                                            std::int64_t tile, int lane) {
  const auto inside = [&](int j) { return (j * kWarp + lane) * kChunk; };
  std::uint64_t packed[kChunksPerLane];
  Stats stats[kChunksPerLane];
#pragma unroll
  for (int j = 0; j < kChunksPerLane; ++j) {
    const ChunkPlace at = chunk_place<Bits, Full>(src, tile, inside(j));
    if (at.count <= 0) continue;
    packed[j] = load_codes<Bits>(at.codes, at.room);
    stats[j] = load_stats(src.data, at.g, src.stats);
  }
  const math::HashKey key = tile_key(seed_key, tile);
#pragma unroll
  for (int j = 0; j < kChunksPerLane; ++j) {
    const ChunkPlace at = chunk_place<Bits, Full>(src, tile, inside(j));
    if (at.count <= 0) continue;
    ChunkNoise noise = {};
    if constexpr (Dithered) noise = chunk_noise(key, tile, inside(j));
    float values[kChunk];
    affine_decode_chunk<Bits, Dithered>(packed[j], stats[j], noise, values);
    const auto chunk = math::is_nan(stats[j].first) ? nan_chunk<Type>() : narrow<Type>(values);
    if constexpr (Full) {
      dst.store_full(at.first, chunk);
    } else {
      dst.store(at.first, at.count, chunk);
    }
  }
}

template <DType Type, int Bits, bool Dithered, class Access>
__global__ void __launch_bounds__(kThreads, kResidentBlocks<Storage<Type>>)
    affine_decode_kernel(const __grid_constant__ AffineBuffer src, const __grid_constant__ Access dst,
                         const __grid_constant__ KernelSeed seed) {
  const math::HashKey key = seed.key();
  on_tile(tile_count(src.geometry), [&](std::int64_t tile, int lane) {
    if (Access::kDense && (tile + 1) * kTile <= src.geometry.elems) {
      decode_tile<Type, Bits, Dithered, Access::kDense>(src, dst, key, tile, lane);
    } else {
      decode_tile<Type, Bits, Dithered, false>(src, dst, key, tile, lane);
    }
  });
}

}  // namespace

void encode(const Affine& spec, const codec::EncodeJob& job) {
  with_float(job.src.dtype, [&]<DType Type>() {
    with_bits<format::kMaxBits>(spec.bits, [&]<int Bits>() {
      with_bool(spec.rounding != Rounding::nearest, [&]<bool Noisy>() {
        with_access<Storage<Type>>(job.src.data, job.src.order, job.geometry.flat(), [&](auto access) {
          launch(affine_encode_kernel<Type, Bits, Noisy, decltype(access)>, tile_count(job.geometry), *job.stream,
                 access, affine_buffer(spec, job, job.dst), KernelSeed(job.seed), Padding(job.dst, job.sections));
        });
      });
    });
  });
}

void decode(const Affine& spec, const codec::DecodeJob& job) {
  with_float(job.dst.dtype, [&]<DType Type>() {
    with_bits<format::kMaxBits>(spec.bits, [&]<int Bits>() {
      with_bool(spec.rounding == Rounding::dithered, [&]<bool Dithered>() {
        with_access<Storage<Type>>(job.dst.data, job.dst.order, job.geometry.flat(), [&](auto access) {
          launch(affine_decode_kernel<Type, Bits, Dithered, decltype(access)>, tile_count(job.geometry), *job.stream,
                 affine_buffer(spec, job, job.src), access, KernelSeed(job.seed));
        });
      });
    });
  });
}

}  // namespace actzip::cuda
