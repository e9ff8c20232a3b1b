// Decodes `affine` on CUDA. Decoding needs no reduction, so the chunks of a warp are simply one run.
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
#include "format/bits.hpp"
#include "math/affine.hpp"

namespace actzip::cuda {
namespace {

/// The decoded values of the first `Count` codes.
template <int Bits, bool Dithered, int Count>
__device__ __forceinline__ void decode_codes(std::uint64_t packed, Stats stats, const std::uint32_t (&noise)[Count / 4],
                                             float (&values)[Count]) {
  std::uint32_t numbers[Count];
  code_numbers<Bits, Dithered>(packed, noise, numbers);
#pragma unroll
  for (int i = 0; i < Count; ++i) values[i] = math::affine_value(numbers[i], stats.first, stats.second);
}

/// Any tile, with its elements staged unless they are dense.
template <DType Type, int Bits, bool Dithered, class Access>
__device__ __forceinline__ void decode_any_tile(const AffineBuffer& src, const Access& dst, math::HashKey key,
                                                std::int64_t tile, std::uint32_t lane) {
  const LaneChunks numbers(src.geometry.group, lane);
  const LaneGroup<Bits> places(src, tile, lane);
  const TileNoise tile_noise(key, tile);
  with_target<Storage<Type>>(dst, src.geometry, tile, [&](const auto& target) {
    if (!places.exists()) return;
    const Stats stats = load_stats(src.stats_section, places.at(numbers.number(0)).g, src.stats);
#pragma unroll
    for (int j = 0; j < kChunksPerLane; ++j) {
      const std::uint32_t number = numbers.number(j);
      const ChunkPlace at = places.at(number);
      if (at.count <= 0) continue;
      std::uint32_t noise[2] = {};
      if constexpr (Dithered) {
        noise[0] = tile_noise.of_quad(2 * number);
        noise[1] = tile_noise.of_quad(2 * number + 1);
      }
      float values[kChunk];
      with_width<Bits, Affine::kMostBits>(at.bits, [&]<int Width>() {
        decode_codes<Width, Dithered>(load_codes<Width>(at.codes, at.room), stats, noise, values);
      });
      Chunk<Storage<Type>> chunk;
      narrow<Type>(values, chunk.w);
      if (math::is_nan(stats.first)) fill_nan<Type>(chunk.w);
      target.store(at.first, at.count, chunk);
    }
  });
}

/// The same, not inlined: inside a kernel for full tiles it would cost their code registers.
template <DType Type, int Bits, bool Dithered, class Access>
__device__ __noinline__ void decode_ragged_tile(const AffineBuffer& src, const Access& dst, math::HashKey key,
                                                std::int64_t tile, std::uint32_t lane) {
  decode_any_tile<Type, Bits, Dithered>(src, dst, key, tile, lane);
}

/// Loads the codes of a full tile, in rows of as many elements as the warp stores at once. `Aligned` codes start at a
/// multiple of 8 bytes.
template <int Bits, int Piece, bool Aligned>
__device__ __forceinline__ void load_rows(const std::byte* codes, std::uint32_t lane,
                                          std::uint64_t (&packed)[kTile / kWarp / Piece]) {
  constexpr int kRow = Piece * kWarp;
  if constexpr (Piece < kChunk && Bits <= 2) {
    // One load for all rows, since short reads between long writes are slow. A lane reads 32 codes, and shuffles hand
    // out the pieces.
    using Own = std::conditional_t<Bits == 1, std::uint32_t, std::uint64_t>;
    Own own;
    if constexpr (Aligned || Bits == 1) {
      own = reinterpret_cast<const Own*>(codes)[lane];
    } else {
      const auto* const words = reinterpret_cast<const std::uint32_t*>(codes) + 2 * lane;
      own = words[0] | static_cast<std::uint64_t>(words[1]) << 32;
    }
    constexpr std::uint32_t kLanes = kWarp / Piece;  // lanes that share what one lane has read
#pragma unroll
    for (int row = 0; row < kTile / kRow; ++row) {
      const Own shared = __shfl_sync(~0U, own, static_cast<int>(row * kRow / kWarp + lane / kLanes));
      packed[row] = shared >> (lane % kLanes * Piece * Bits);
    }
  } else {
    const std::uint32_t first = lane * Piece;
#pragma unroll
    for (int row = 0; row < kTile / kRow; ++row) {
      packed[row] = load_codes<Bits>(codes + first / kChunk * Bits + row * (kRow / 8 * Bits), Bits);
      packed[row] >>= first % kChunk * Bits;
    }
  }
}

/// A full tile. A lane decodes as many neighbours as 16 bytes hold, so that the lanes of a warp store contiguous
/// memory; with 4-byte elements that is half a chunk. A tile with an unrepresentable group is left to
/// decode_ragged_tile().
template <DType Type, int Bits, int Width, bool Dithered>
__device__ __forceinline__ void decode_full_tile(const AffineBuffer& src, const std::byte* codes,
                                                 const DenseAccess<Storage<Type>>& dst, math::HashKey key,
                                                 std::int64_t tile, std::uint32_t lane) {
  constexpr int kPiece = 16 / static_cast<int>(sizeof(Storage<Type>));
  constexpr int kRow = kPiece * kWarp;
  constexpr int kRows = kTile / kRow;
  const TileStats tile_stats(src.stats_section, src.stats, src.geometry.group, tile, lane);
  std::uint64_t packed[kRows];
  load_rows<Width, kPiece, Bits != kRunTimeBits>(codes, lane, packed);
  if (tile_stats.any_nan()) return decode_ragged_tile<Type, Bits, Dithered>(src, dst, key, tile, lane);
  const TileNoise tile_noise(key, tile);
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const std::uint32_t inside = row * kRow + lane * kPiece;
    std::uint32_t noise[kPiece / 4] = {};
#pragma unroll
    for (std::uint32_t q = 0; Dithered && q < kPiece / 4; ++q) noise[q] = tile_noise.of_quad(inside / 4 ^ q);
    float values[kPiece];
    decode_codes<Width, Dithered>(packed[row], tile_stats.of(inside), noise, values);
    std::uint32_t words[4];
    narrow<Type>(values, words);
    dst.store_quad(tile * kTile + lane * kPiece, row * kRow, words);
  }
}

template <DType Type, int Bits, bool Dithered, class Access>
__global__ void __launch_bounds__(kThreads, 8)
    affine_decode_kernel(const __grid_constant__ AffineBuffer src, const __grid_constant__ Access dst,
                         const __grid_constant__ KernelSeed seed) {
  const math::HashKey key = seed.key();
  on_tile(src.tiles, [&](std::int64_t tile, std::uint32_t lane) {
    if constexpr (Access::kDense) {
      const TileRun at = tile_run<Bits>(src, tile);
      if (at.whole && (tile + 1) * kTile <= src.geometry.elems) {
        return with_width<Bits, Affine::kMostBits>(at.run.bits, [&]<int Width>() {
          decode_full_tile<Type, Bits, Width, Dithered>(src, at.run.codes, dst, key, tile, lane);
        });
      }
      decode_ragged_tile<Type, Bits, Dithered>(src, dst, key, tile, lane);
    } else {
      decode_any_tile<Type, Bits, Dithered>(src, dst, key, tile, lane);
    }
  });
}

}  // namespace

void decode(const Affine& spec, const codec::DecodeJob& job) {
  with_float(job.dst.dtype, [&]<DType Type>() {
    with_bits(spec, job.sections.has_segment_bits(), [&]<int Bits>() {
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
