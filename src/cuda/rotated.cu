// `rotated` on CUDA: a warp works on one tile of 1,024 padded elements, see rotated_tile.cuh.
#include <cstdint>

#include "cuda/backend.hpp"
#include "cuda/mask.cuh"
#include "cuda/rotated_tile.cuh"
#include "dispatch.hpp"
#include "math/rotated.hpp"

namespace actzip::cuda {
namespace {

constexpr int kMostRotatedBits = 4;
constexpr float kLargest = 0x1.fffffep127F;
constexpr float kWild = 0x1p100F;  ///< far above what is representable, far below what overflows in two transforms

/// What the kernels know of the buffer.
struct RotatedBuffer {
  std::byte* data;
  std::int64_t codes;
  std::int64_t mask;
  std::int64_t mask_segment_bytes;  ///< 0 if there is no mask plane
  format::Geometry geometry;
  StatsType stats;

  [[nodiscard]] __device__ bool has_mask() const { return mask_segment_bytes != 0; }
};

template <class Job>
RotatedBuffer rotated_buffer(const Rotated& spec, const Job& job, const std::byte* data) {
  const format::Geometry geometry = format::flattened(job.geometry);
  const std::int64_t mask_run = geometry.segments == 1 ? job.sections.mask_used : job.sections.mask_words * 4;
  return {const_cast<std::byte*>(data), job.sections.codes, job.sections.mask, mask_run, geometry, spec.stats};
}

/// A lane's elements of one block in spatial layout. In a full tile, one that a dense tensor fills, all of them exist
/// and the formulas are short.
struct BlockPlace {
  std::int64_t g;      ///< its group
  std::int64_t first;  ///< its first element
  int count;           ///< how many of its eight exist; may be negative
  int group_count;     ///< how many its group has
  std::byte* mask;     ///< its byte of the mask plane, or null
};

template <bool Full>
__device__ __forceinline__ BlockPlace block_place(const RotatedBuffer& buffer, std::int64_t tile, int block, int lane) {
  const format::Geometry& geometry = buffer.geometry;
  const std::int64_t padded = tile * kTile + lane * kChunk + block * kBlock;
  const bool halves = geometry.group == 128;
  const std::int64_t g = (tile * kBlocks + block) * (halves ? 2 : 1) + (halves ? lane / 16 : 0);
  std::byte* const plane = buffer.data + buffer.mask;
  if constexpr (Full) return {g, padded, kChunk, geometry.group, plane + (padded >> 3)};
  if (g >= geometry.groups()) return {g, 0, 0, 1, nullptr};
  const format::GroupRange range = group_range_of(geometry, g);
  const int position = static_cast<int>(padded) & (geometry.group - 1);
  const std::int64_t byte = (range.number * geometry.group + position) >> 3;
  return {g, range.first + position, range.count - position, range.count,
          byte < buffer.mask_segment_bytes ? plane + range.segment * buffer.mask_segment_bytes + byte : nullptr};
}

/// Where a lane's codes of one block lie.
template <int Bits>
__device__ __forceinline__ std::byte* code_place(const RotatedBuffer& buffer, std::int64_t tile, int block, int slot) {
  return buffer.data + buffer.codes + (tile * (kTile / 8) + slot) * Bits + block * (kBlock / 8 * Bits);
}

/// Whether the group that slot belongs to exists.
template <bool Full>
__device__ __forceinline__ bool slot_exists(const format::Geometry& geometry, std::int64_t tile, int block, int slot) {
  if constexpr (Full) return true;
  return tile * kTile + block * kBlock + slot * kChunk < geometry.groups() * geometry.group;
}

/// Reads the elements of a tile and, if there is one, writes their mask plane.
template <DType Type, bool Full, class Access>
__device__ __forceinline__ void load_tile(const Access& src, const RotatedBuffer& dst, std::int64_t tile, int lane,
                                          Chunk<Storage<Type>> (&chunks)[kBlocks]) {
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const BlockPlace at = block_place<Full>(dst, tile, b, lane);
    chunks[b] = src.load(at.first, at.count);
  }
  if (!dst.has_mask()) return;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    std::byte* const at = block_place<Full>(dst, tile, b, lane).mask;
    if (Full || at != nullptr) *at = static_cast<std::byte>(nonzero_bits<Type>(chunks[b]));
  }
}

/// Two groups of 128 share the products of a block, where an infinity or a NaN of one would reach the other through a
/// product with 0. Groups that could lead to one become zeros here. Returns whether the group that this lane speaks for
/// stays as it is.
template <DType Type>
__device__ __forceinline__ bool clear_wild_groups(Chunk<Storage<Type>> (&chunks)[kBlocks], const GroupSums& groups,
                                                  int lane) {
  bool stays = true;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    bool tame = true;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) tame = tame && fabsf(widen<Type>(chunks[b], i)) <= kWild;
    const std::uint32_t wild = __ballot_sync(~0U, !tame);
    if ((wild & (lane < 16 ? 0xffffU : 0xffff0000U)) != 0) chunks[b] = Chunk<Storage<Type>>{};
    if (b == groups.block() && (wild & (groups.half() == 0 ? 0xffffU : 0xffff0000U)) != 0) stays = false;
  }
  return stays;
}

template <DType Type, int Bits, bool Full, class Access>
__device__ __forceinline__ void encode_tile(const Access& src, const RotatedBuffer& dst, math::HashKey key,
                                            std::int64_t tile, int lane) {
  const int group = dst.geometry.group;
  const bool bf16_stats = dst.stats == StatsType::bf16;
  const GroupSums groups(lane, group);
  const Rotation<Hadamard> rotation(key, tile, lane, group);

  Chunk<Storage<Type>> chunks[kBlocks];
  load_tile<Type, Full>(src, dst, tile, lane, chunks);
  float sums[kBlocks];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) sums[b] = chunk_sum<Type>(chunks[b]);
  const int count = block_place<Full>(dst, tile, groups.block(), groups.half() * 16).group_count;
  const float inverse_group = group == 256 ? 0x1p-8F : 0x1p-7F;
  float mean = groups.reduce(sums) * (Full ? inverse_group : 1.0F / static_cast<float>(count));
  if (bf16_stats || Type != DType::f32) mean = math::float_of(nearest_pair(mean) << 16);
  const bool tame = group == 256 || clear_wild_groups<Type>(chunks, groups, lane);
  const bool finite = tame && fabsf(mean) <= kLargest;
  const float used_mean = finite ? mean : 0.0F;

  float y[kBlocks][kChunk];
  float squares[kBlocks];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const int present = block_place<Full>(dst, tile, b, lane).count;
    rotate<Type>(residual<Type>(chunks[b], groups.of_block(used_mean, b), present, rotation.first, b), rotation, b,
                 y[b]);
    squares[b] = 0.0F;
#pragma unroll
    for (float v : y[b]) squares[b] = fmaf(v, v, squares[b]);
  }
  const float square_sum = groups.reduce(squares);
  const bool usable = square_sum > 0.0F && square_sum <= kLargest;
  // Only where the cuts lie hangs on sigma: the fast reciprocal root will do.
  const float inverse_root = group == 256 ? 0x1p-4F : 0.08838835F;  // of the number of coefficients
  const float sigma = usable ? square_sum * rsqrtf(square_sum) * inverse_root : -1.0F;

  float products[kBlocks];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const float block_sigma = groups.of_block(sigma, b);
    const std::uint32_t packed = kPrecise<Type> ? quantize_coefficients<Bits>(y[b], block_sigma, products[b])
                                                : quantize_packed<Bits>(y[b], block_sigma, products[b]);
    if (!slot_exists<Full>(dst.geometry, tile, b, lane)) continue;
    store_codes<Bits>(code_place<Bits>(dst, tile, b, lane), block_sigma < 0.0F ? 0U : packed, Bits);
  }

  const float product = groups.reduce(products);
  if (!groups.speaks()) return;
  const std::int64_t g = (tile * kBlocks + groups.block()) * (kBlock / group) + groups.half();
  if (!Full && g >= dst.geometry.groups()) return;
  float scale = usable ? __fdividef(square_sum * inverse_group * inverse_group, product) : 0.0F;
  if (bf16_stats) scale = math::bf16_stochastic(scale, math::scale_noise(key, static_cast<std::uint64_t>(g)));
  const bool representable = finite && square_sum <= kLargest;
  store_stats(dst.data, g, dst.stats, {representable ? mean + 0.0F : math::float_of(math::kNanF32), scale});
}

template <DType Type, int Bits, class Access>
__global__ void __launch_bounds__(kThreads, kResidentBlocks<Storage<Type>>)
    rotated_encode_kernel(const __grid_constant__ Access src, const __grid_constant__ RotatedBuffer dst,
                          const __grid_constant__ KernelSeed seed, const __grid_constant__ Padding padding) {
  padding.zero();
  const math::HashKey key = seed.key();
  on_tile(tile_count(dst.geometry), [&](std::int64_t tile, int lane) {
    if (Access::kDense && (tile + 1) * kTile <= dst.geometry.elems) {
      encode_tile<Type, Bits, Access::kDense>(src, dst, key, tile, lane);
    } else {
      encode_tile<Type, Bits, false>(src, dst, key, tile, lane);
    }
  });
}

template <DType Type, int Bits, bool Full, class Access>
__device__ __forceinline__ void decode_tile(const RotatedBuffer& src, const Access& dst, math::HashKey key,
                                            std::int64_t tile, int lane) {
  EncodedChunk in[kBlocks];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const bool exists = slot_exists<Full>(src.geometry, tile, b, lane);
    in[b].codes =
        exists ? static_cast<std::uint32_t>(load_codes<Bits>(code_place<Bits>(src, tile, b, lane), Bits)) : 0U;
    const BlockPlace at = block_place<Full>(src, tile, b, lane);
    if (Full || at.count > 0) in[b].stats = load_stats(src.data, at.g, src.stats);
    if (src.has_mask()) in[b].mask = Full || at.count > 0 ? static_cast<std::uint32_t>(*at.mask) : 0U;
  }
  const Rotation<DecodingTransform<Type>> rotation(key, tile, lane, src.geometry.group);
  const LevelTable<Bits, Type> table;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const BlockPlace at = block_place<Full>(src, tile, b, lane);
    auto chunk = rotated_decode_chunk<Type, Bits>(in[b], b, table, rotation);
    if (src.has_mask()) keep_masked<Type>(chunk, in[b].mask);
    if constexpr (Full) {
      dst.store_full(at.first, chunk);
    } else if (at.count > 0) {
      dst.store(at.first, at.count, chunk);
    }
  }
}

template <DType Type, int Bits, class Access>
__global__ void __launch_bounds__(kThreads, kResidentBlocks<Storage<Type>>)
    rotated_decode_kernel(const __grid_constant__ RotatedBuffer src, const __grid_constant__ Access dst,
                          const __grid_constant__ KernelSeed seed) {
  const math::HashKey key = seed.key();
  on_tile(tile_count(src.geometry), [&](std::int64_t tile, int lane) {
    if (Access::kDense && (tile + 1) * kTile <= src.geometry.elems) {
      decode_tile<Type, Bits, Access::kDense>(src, dst, key, tile, lane);
    } else {
      decode_tile<Type, Bits, false>(src, dst, key, tile, lane);
    }
  });
}

}  // namespace

void encode(const Rotated& spec, const codec::EncodeJob& job) {
  with_float(job.src.dtype, [&]<DType Type>() {
    with_bits<kMostRotatedBits>(spec.bits, [&]<int Bits>() {
      with_access<Storage<Type>>(job.src.data, job.src.order, job.geometry.flat(), [&](auto access) {
        launch(rotated_encode_kernel<Type, Bits, decltype(access)>, tile_count(job.geometry), *job.stream, access,
               rotated_buffer(spec, job, job.dst), KernelSeed(job.seed), Padding(job.dst, job.sections));
      });
    });
  });
}

void decode(const Rotated& spec, const codec::DecodeJob& job) {
  if (job.dst.dtype == DType::boolean) {
    return decode_bits({job.src + job.sections.mask, job.geometry.segment_elems, job.sections.mask_words * 4}, Mask{},
                       job.dst, *job.stream);
  }
  with_float(job.dst.dtype, [&]<DType Type>() {
    with_bits<kMostRotatedBits>(spec.bits, [&]<int Bits>() {
      with_access<Storage<Type>>(job.dst.data, job.dst.order, job.geometry.flat(), [&](auto access) {
        launch(rotated_decode_kernel<Type, Bits, decltype(access)>, tile_count(job.geometry), *job.stream,
               rotated_buffer(spec, job, job.src), access, KernelSeed(job.seed));
      });
    });
  });
}

}  // namespace actzip::cuda
