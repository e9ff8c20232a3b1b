// `affine` on CUDA. Encoding: a group occupies group/32 lanes with 32 elements each, as four chunks that are
// interleaved over the lanes, so that every load of a warp is one run of memory. Decoding needs no reduction, so the
// chunks of a warp are simply one run.
#include <cstdint>

#include "cuda/backend.hpp"
#include "cuda/chunk.cuh"
#include "cuda/launch.cuh"
#include "cuda/segment_bits.cuh"
#include "cuda/uniform.cuh"
#include "cuda/values.cuh"
#include "dispatch.hpp"
#include "format/bits.hpp"
#include "math/affine.hpp"

namespace actzip::cuda {
namespace {

/// What the kernels need to know of an encoded buffer.
struct AffineBuffer {
  std::byte* stats_section;
  std::byte* codes;
  std::int64_t segment_bytes;  ///< of one segment's codes
  SegmentTable table;          ///< for kRunTimeBits
  format::Geometry geometry;
  std::int64_t tiles;
  StatsType stats;
  float floor;
};

template <class Job>
AffineBuffer affine_buffer(const Affine& spec, const Job& job, const std::byte* data) {
  const format::Geometry geometry = job.sections.has_segment_bits() ? job.geometry : format::flattened(job.geometry);
  const std::int64_t run = geometry.segments == 1 ? job.sections.codes_used : job.sections.code_words * 4;
  auto* const bytes = const_cast<std::byte*>(data);
  return {bytes + job.sections.stats,
          bytes + job.sections.codes,
          run,
          segment_table(spec, job, data),
          geometry,
          tile_count(geometry),
          spec.stats,
          spec.floor};
}

/// The codes of a segment, or of a full tile.
template <int Bits>
__device__ __forceinline__ CodeRun segment_run(const AffineBuffer& buffer, std::int64_t segment) {
  if constexpr (Bits == kRunTimeBits) return buffer.table.run(segment);
  return {buffer.codes + segment * buffer.segment_bytes, buffer.segment_bytes, Bits};
}
template <int Bits>
__device__ __forceinline__ TileRun tile_run(const AffineBuffer& buffer, std::int64_t tile) {
  if constexpr (Bits == kRunTimeBits) return buffer.table.tile_run(tile);
  return {{buffer.codes + tile * (kTile / 8 * Bits), 0, Bits}, true};
}

/// One chunk: its elements and its codes. In a full tile, which a dense tensor fills, all of it exists and the formulas
/// are short.
struct ChunkPlace {
  std::int64_t g;      ///< its group
  std::int64_t first;  ///< its first element
  int count;           ///< how many of its eight elements exist; may be negative
  std::byte* codes;
  std::int64_t room;  ///< bytes from `codes` to the end of the segment's run; not positive if there is no group
  int bits;
};

/// `chunk` is its number in the tile; `run` is the tile's run if the tile is full.
template <int Bits, bool Full>
__device__ __forceinline__ ChunkPlace chunk_place(const AffineBuffer& buffer, const CodeRun& run, std::int64_t tile,
                                                  std::uint32_t chunk) {
  const format::Geometry& geometry = buffer.geometry;
  const std::int64_t padded = tile * kTile + chunk * kChunk;
  const int shift = 31 - __clz(geometry.group);
  const std::int64_t g = tile * (kTile >> shift) + (chunk * kChunk >> shift);
  if constexpr (Full) return {g, padded, kChunk, run.codes + chunk * run.bits, run.bits, run.bits};
  if (g >= geometry.groups()) return {g, 0, 0, nullptr, 0, Bits == kRunTimeBits ? 1 : Bits};
  const format::GroupRange range = group_range_of(geometry, g);
  const CodeRun own = segment_run<Bits>(buffer, range.segment);
  const int position = static_cast<int>(padded) & (geometry.group - 1);
  const std::int64_t byte = ((range.number * geometry.group + position) >> 3) * own.bits;
  return {g, range.first + position, range.count - position, own.codes + byte, own.bytes - byte, own.bits};
}

/// `run` is the tile's run if the tile is full.
template <DType Type, int Bits, bool Noisy, bool Full, class Access>
__device__ __forceinline__ void encode_tile(const Access& src, const AffineBuffer& dst, const CodeRun& run,
                                            math::HashKey key, std::int64_t tile, std::uint32_t lane) {
  const std::uint32_t lanes = static_cast<std::uint32_t>(dst.geometry.group) / (kChunk * kChunksPerLane);
  const std::uint32_t sub = lane & (lanes - 1);  // a power of two
  const std::uint32_t first_chunk = (lane - sub) * kChunksPerLane + sub;
  const auto chunk = [&](int j) { return first_chunk + j * lanes; };

  Chunk<Storage<Type>> chunks[kChunksPerLane];
#pragma unroll
  for (int j = 0; j < kChunksPerLane; ++j) {
    const ChunkPlace at = chunk_place<Bits, Full>(dst, run, tile, chunk(j));
    chunks[j] = src.load(at.first, at.count);
  }
  Extremes<Type> extremes;
#pragma unroll
  for (int j = 0; j < kChunksPerLane; ++j) {
    const int count = chunk_place<Bits, Full>(dst, run, tile, chunk(j)).count;
    if (count < kChunk) repeat_first(chunks[j], count);
    if (count > 0) extremes.take(chunks[j]);
  }
  extremes.reduce(lanes);
  const float floor = Noisy ? math::kAffineNoFloor : dst.floor;  // a compile-time constant if there is none, at no cost
  const int bits = Bits != kRunTimeBits ? Bits : chunk_place<Bits, Full>(dst, run, tile, chunk(0)).bits;
  const math::AffineGroup group =
      math::affine_group(math::affine_inverse_levels(bits), extremes.least(), extremes.most(), dst.stats, floor);
  const std::int64_t g = chunk_place<Bits, Full>(dst, run, tile, chunk(0)).g;
  if (!Full && g >= dst.geometry.groups()) return;
  if (sub == 0) store_stats(dst.stats_section, g, dst.stats, {group.min, group.step});

  const TileNoise noise(key, tile);
#pragma unroll
  for (int j = 0; j < kChunksPerLane; ++j) {
    std::uint32_t quads[2];
#pragma unroll
    for (std::uint32_t q = 0; q < 2; ++q) {
      std::uint32_t steps[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) steps[i] = math::affine_steps<Noisy>(widen<Type>(chunks[j], 4 * q + i), group);
      quads[q] = four_codes<Noisy>(steps, Noisy ? noise.of_quad(2 * chunk(j) ^ q) : 0U);
    }
    with_width<Bits, Affine::kMostBits>(bits, [&]<int Width>() {
      std::uint64_t packed = pack_bytes<Width>(quads[0], quads[1]);
      packed &= group.keep | static_cast<std::uint64_t>(group.keep) << 32;
      const ChunkPlace at = chunk_place<Bits, Full>(dst, run, tile, chunk(j));
      if (at.count < kChunk) packed &= at.count <= 0 ? 0 : (std::uint64_t{1} << (at.count * Width)) - 1;
      store_codes<Width>(at.codes, packed, at.room);
    });
  }
}

/// A tile that is not full. Not inlined: inside the kernel it would cost the code for full tiles registers.
template <DType Type, int Bits, bool Noisy, class Access>
__device__ __noinline__ void encode_ragged_tile(const Access& src, const AffineBuffer& dst, math::HashKey key,
                                                std::int64_t tile, std::uint32_t lane) {
  encode_tile<Type, Bits, Noisy, false>(src, dst, {}, key, tile, lane);
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
        return encode_tile<Type, Bits, Noisy, true>(src, dst, at.run, key, tile, lane);
      }
    }
    encode_ragged_tile<Type, Bits, Noisy>(src, dst, key, tile, lane);
  });
}

/// The decoded values of the first `Count` codes.
template <int Bits, bool Dithered, int Count>
__device__ __forceinline__ void decode_codes(std::uint64_t packed, Stats stats, const std::uint32_t (&noise)[Count / 4],
                                             float (&values)[Count]) {
  std::uint32_t numbers[Count];
  code_numbers<Bits, Dithered>(packed, noise, numbers);
#pragma unroll
  for (int i = 0; i < Count; ++i) values[i] = math::affine_value(numbers[i], stats.first, stats.second);
}

/// Any tile. Not inlined, like encode_ragged_tile().
template <DType Type, int Bits, bool Dithered, class Access>
__device__ __noinline__ void decode_ragged_tile(const AffineBuffer& src, const Access& dst, math::HashKey key,
                                                std::int64_t tile, std::uint32_t lane) {
  const TileNoise tile_noise(key, tile);
  for (int j = 0; j < kChunksPerLane; ++j) {
    const std::uint32_t number = j * kWarp + lane;
    const ChunkPlace at = chunk_place<Bits, false>(src, {}, tile, number);
    if (at.count <= 0) continue;
    const Stats stats = load_stats(src.stats_section, at.g, src.stats);
    const std::uint32_t noise[2] = {tile_noise.of_quad(2 * number), tile_noise.of_quad(2 * number + 1)};
    float values[kChunk];
    with_width<Bits, Affine::kMostBits>(at.bits, [&]<int Width>() {
      decode_codes<Width, Dithered>(load_codes<Width>(at.codes, at.room), stats, noise, values);
    });
    Chunk<Storage<Type>> chunk;
    narrow<Type>(values, chunk.w);
    if (math::is_nan(stats.first)) fill_nan<Type>(chunk.w);
    dst.store(at.first, at.count, chunk);
  }
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
    }
    decode_ragged_tile<Type, Bits, Dithered>(src, dst, key, tile, lane);
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
