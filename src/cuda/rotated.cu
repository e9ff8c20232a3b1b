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

/// A lane's elements of one block in spatial layout. In a full tile, one that a dense tensor fills, all of them exist and
/// the formulas are short.
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
  const std::int64_t g = geometry.group == 256 ? padded >> 8 : padded >> 7;
  std::byte* const plane = buffer.data + buffer.mask;
  if constexpr (Full) return {g, padded, kChunk, geometry.group, plane + padded / 8};
  if (g >= geometry.groups()) return {g, 0, 0, 1, nullptr};
  const format::GroupRange range = group_range_of(geometry, g);
  const int position = static_cast<int>(padded) & (geometry.group - 1);
  const std::int64_t byte = (range.number * geometry.group + position) / 8;
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

template <DType Type, int Bits, bool Full, class Access>
__device__ __forceinline__ void encode_tile(const Access& src, const RotatedBuffer& dst, math::HashKey key,
                                            std::int64_t tile, int lane) {
  const int group = dst.geometry.group;
  const bool bf16_stats = dst.stats == StatsType::bf16;
  const GroupSums groups(lane, group);
  const Rotation rotation(key, tile, lane, group);

  Chunk<Storage<Type>> chunks[kBlocks];
  load_tile<Type, Full>(src, dst, tile, lane, chunks);
  float sums[kBlocks];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) sums[b] = chunk_sum<Type>(chunks[b]);
  const int count = block_place<Full>(dst, tile, groups.block(), groups.half() * 16).group_count;
  float mean = groups.reduce(sums) / static_cast<float>(count);
  if (bf16_stats || Type != DType::f32) mean = __bfloat162float(__float2bfloat16_rn(mean));
  const bool finite = fabsf(mean) <= kLargest;

  float y[kBlocks][kChunk];
  float squares[kBlocks];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const float block_mean = groups.of_block(mean, b);
    Terms<2> terms = residual<Type>(chunks[b], block_mean, block_place<Full>(dst, tile, b, lane).count, rotation.first, b);
    // A NaN must not reach the other group of 128 through a product with 0.
    if (!(fabsf(block_mean) <= kLargest)) terms = Terms<2>{};
    rotate<Type>(terms, rotation, b, y[b]);
    squares[b] = 0.0F;
#pragma unroll
    for (float v : y[b]) squares[b] = fmaf(v, v, squares[b]);
  }
  const float square_sum = groups.reduce(squares);
  const bool usable = square_sum > 0.0F && square_sum <= kLargest;
  const float sigma = usable ? sqrtf(square_sum * (1.0F / static_cast<float>(group))) : -1.0F;

  float products[kBlocks];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const float block_sigma = groups.of_block(sigma, b);
    products[b] = 0.0F;
    const std::uint32_t packed = kPrecise<Type> ? quantize_coefficients<Bits>(y[b], block_sigma, products[b])
                                                : quantize_packed<Bits>(y[b], block_sigma, products[b]);
    if (!slot_exists<Full>(dst.geometry, tile, b, lane)) continue;
    store_codes<Bits>(code_place<Bits>(dst, tile, b, lane), block_sigma < 0.0F ? 0U : packed, Bits);
  }

  const float product = groups.reduce(products);
  if (!groups.speaks()) return;
  const std::int64_t g = (tile * kBlocks + groups.block()) * (kBlock / group) + groups.half();
  if (!Full && g >= dst.geometry.groups()) return;
  float scale = usable ? square_sum / (static_cast<float>(group * group) * product) : 0.0F;
  if (bf16_stats) scale = math::bf16_stochastic(scale, math::scale_noise(key, static_cast<std::uint64_t>(g)));
  const bool representable = finite && square_sum <= kLargest;
  store_stats(dst.data, g, dst.stats, {representable ? mean + 0.0F : math::float_of(math::kNanF32), scale});
}

template <DType Type, int Bits, class Access>
__global__ void __launch_bounds__(kThreads)
    rotated_encode_kernel(const __grid_constant__ Access src, const __grid_constant__ RotatedBuffer dst,
                          const __grid_constant__ KernelSeed seed, const __grid_constant__ Padding padding) {
  padding.zero();
  const auto [tile, lane] = place();
  if (Access::kDense && (tile + 1) * kTile <= dst.geometry.elems) {
    encode_tile<Type, Bits, Access::kDense>(src, dst, seed.key(), tile, lane);
  } else if (tile * kTile < dst.geometry.groups() * dst.geometry.group) {
    encode_tile<Type, Bits, false>(src, dst, seed.key(), tile, lane);
  }
}

template <DType Type, int Bits, bool Full, class Access>
__device__ __forceinline__ void decode_tile(const RotatedBuffer& src, const Access& dst, math::HashKey key,
                                            std::int64_t tile, int lane) {
  EncodedChunk in[kBlocks];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const bool exists = slot_exists<Full>(src.geometry, tile, b, lane);
    in[b].codes = exists ? static_cast<std::uint32_t>(load_codes<Bits>(code_place<Bits>(src, tile, b, lane), Bits)) : 0U;
    const BlockPlace at = block_place<Full>(src, tile, b, lane);
    if (Full || at.count > 0) in[b].stats = load_stats(src.data, at.g, src.stats);
    if (src.has_mask()) in[b].mask = Full || at.count > 0 ? static_cast<std::uint32_t>(*at.mask) : 0U;
  }
  const Rotation rotation(key, tile, lane, src.geometry.group);
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const BlockPlace at = block_place<Full>(src, tile, b, lane);
    auto chunk = rotated_decode_chunk<Type, Bits>(in[b], b, rotation);
    if (src.has_mask()) keep_masked<Type>(chunk, in[b].mask);
    if constexpr (Full) {
      dst.store_full(at.first, chunk);
    } else if (at.count > 0) {
      dst.store(at.first, at.count, chunk);
    }
  }
}

template <DType Type, int Bits, class Access>
__global__ void __launch_bounds__(kThreads)
    rotated_decode_kernel(const __grid_constant__ RotatedBuffer src, const __grid_constant__ Access dst,
                          const __grid_constant__ KernelSeed seed) {
  const auto [tile, lane] = place();
  if (Access::kDense && (tile + 1) * kTile <= src.geometry.elems) {
    decode_tile<Type, Bits, Access::kDense>(src, dst, seed.key(), tile, lane);
  } else if (tile * kTile < src.geometry.groups() * src.geometry.group) {
    decode_tile<Type, Bits, false>(src, dst, seed.key(), tile, lane);
  }
}

std::int64_t tile_count(const format::Geometry& geometry) {
  return format::ceil_div(geometry.groups() * geometry.group, kTile);
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
