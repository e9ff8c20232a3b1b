// The kernels of `rotated`: a warp works on one tile of 1,024 padded elements, see rotated_tile.cuh. They read and
// write elements through an access class (of chunk.cuh or src/ops).
#pragma once

#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/rotated_buffer.cuh"
#include "cuda/rotated_decode.cuh"
#include "cuda/rotated_encode.cuh"
#include "cuda/staged.cuh"
#include "math/rotated.hpp"

namespace actzip::cuda {

inline constexpr float kLargest = 0x1.fffffep127F;
inline constexpr float kWild =
    0x1p100F;  ///< far above what is representable, far below what overflows in two transforms

/// Reads the elements of a tile.
template <DType Type, bool Full, class Access>
__device__ __forceinline__ void load_tile(const Access& src, const LanePlaces<Full>& places, std::int64_t tile, int lane,
                                          Chunk<Storage<Type>> (&chunks)[kBlocks]) {
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) chunks[b] = src.load(places.of(b).first, places.of(b).count);
  if constexpr (requires { &Access::after_load; }) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      if (!Full && places.of(b).count <= 0) continue;
      chunks[b] = src.after_load(tile * kTile + lane * kChunk, b * kBlock, chunks[b]);
    }
  }
}

/// Writes the mask plane of a tile, if there is one.
template <DType Type, bool Full>
__device__ __forceinline__ void store_mask(const RotatedBuffer& dst, const LanePlaces<Full>& places,
                                           const Chunk<Storage<Type>> (&chunks)[kBlocks]) {
  if (!dst.has_mask()) return;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    std::byte* const at = places.of(b).mask;
    if (Full || at != nullptr) *at = static_cast<std::byte>(nonzero_bits<Type>(chunks[b]));
  }
}

/// Two groups of 128 share the products of a block, so that an infinity or a NaN of one would reach the other through a
/// product with 0. A group that could lead to one is set to zeros here. Returns whether this lane's group was.
template <DType Type>
[[nodiscard]] __device__ __forceinline__ bool clear_wild_group(Chunk<Storage<Type>>& chunk, int lane) {
  bool tame = true;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) tame = tame && fabsf(widen<Type>(chunk, i)) <= kWild;
  const std::uint32_t wild = __ballot_sync(~0U, !tame);
  if ((wild & (lane < 16 ? 0xffffU : 0xffff0000U)) == 0) return false;
  chunk = Chunk<Storage<Type>>{};
  return true;
}

/// values[i], without an index, so that they stay in registers.
template <class T>
__device__ __forceinline__ T choose(const T (&values)[kBlocks], int i) {
  const T low = i % 2 == 0 ? values[0] : values[1];
  const T high = i % 2 == 0 ? values[2] : values[3];
  return i < 2 ? low : high;
}

/// The bits of this lane's group in block `i`.
template <int Bits, bool Full>
__device__ __forceinline__ int group_bits(const TileCodes<Bits, Full>& codes, int i) {
  const int bits[kBlocks] = {codes.bits(0), codes.bits(1), codes.bits(2), codes.bits(3)};
  return choose(bits, i);
}

template <DType Type, int Bits, bool Full, class Access>
__device__ __forceinline__ void encode_tile(const Access& src, const RotatedBuffer& dst,
                                            const TileCodes<Bits, Full>& codes, int group, math::HashKey key,
                                            std::int64_t tile, int lane) {
  const float inverse_group = group == 256 ? 0x1p-8F : 0x1p-7F;
  const bool bf16_stats = dst.stats == StatsType::bf16;
  const LanePlaces<Full> places(dst, group, tile, lane);
  Chunk<Storage<Type>> chunks[kBlocks];
  load_tile<Type>(src, places, tile, lane, chunks);
  const TileEncoder<Type> encoder(key, tile, lane, group);  // signs and factors, while the elements are being loaded
  store_mask<Type>(dst, places, chunks);
  bool cleared[kBlocks] = {};
  if (group == 128) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) cleared[b] = clear_wild_group<Type>(chunks[b], lane);
  }
  float sums[kBlocks];
  encoder.sums(chunks, sums);
  Mean<Type> means[kBlocks];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const int count = places.of(b).group_count;
    float mean = sums[b] * (Full ? inverse_group : 1.0F / static_cast<float>(count));
    if (Type == DType::f32 && bf16_stats) mean = Mean<DType::bf16>(mean).value();
    means[b] = Mean<Type>(cleared[b] ? math::float_of(math::kNanF32) : mean);
  }

  float y[kBlocks][kChunk];
  float squares[kBlocks];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const int present = places.of(b).count;
    // A mean that is not finite must not reach the other group of the block.
    const Mean<Type> mean = group == 256 || means[b].finite() ? means[b] : Mean<Type>(0.0F);
    encoder.start(residual<Type>(chunks[b], mean, present, encoder.signs(), b), y[b]);
    squares[b] = 0.0F;
#pragma unroll
    for (float v : y[b]) squares[b] = fmaf(v, v, squares[b]);
  }
  const GroupSums<Layout::coefficient> square_sums(lane, group);
  const float square_sum = square_sums.reduce(squares);
  const bool usable = square_sum > 0.0F && square_sum <= kLargest;
  const float root = group == 256 ? 0x1p4F : 0x1.6a09e6p3F;  // the square root of the number of coefficients
  // Sigma only determines where the cuts lie, so a fast reciprocal root is exact enough.
  const float inverse_sigma = usable ? rsqrtf(square_sum) * root : 1.0F;
  const float unit = encoder.unit(inverse_sigma);
  const std::uint32_t usable_groups = __ballot_sync(~0U, usable);

  const GroupSums<Layout::spatial> groups(lane, group);
  __half2 products[kBlocks] = {};
  codes.for_each_width([&]<int Width>() {
    EightCodes<Width> packed[kBlocks];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      __half2 product;
      packed[b] = encoder.template finish<Width>(y[b], square_sums.of_block(unit, b), b, product);
      if (Full || Bits != kRunTimeBits || codes.bits(b) == Width) products[b] = product;
    }
    if (usable_groups != ~0U) {  // rare: other tiles only pay for the branch
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        if (!groups.flag_of_block<Layout::coefficient>(usable_groups, b)) packed[b] = 0;
      }
    }
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      if (!Full && Bits == kRunTimeBits && codes.bits(b) != Width) continue;
      if (slot_exists<Full>(dst.geometry, tile, b, lane)) store_codes<Width>(codes.at(b), packed[b], Width);
    }
  });

  const float product = groups.reduce(products);
  const float own_squares = groups.from<Layout::coefficient>(square_sum);
  const float own_inverse_sigma = groups.from<Layout::coefficient>(inverse_sigma);
  if (!groups.speaks()) return;
  const std::int64_t g = (tile * kBlocks + groups.block()) * (kBlock / group) + groups.half();
  if (!Full && g >= dst.geometry.groups()) return;
  const Mean<Type> mean = choose(means, groups.block());
  const bool coded = groups.flag_of_block<Layout::coefficient>(usable_groups, groups.block());
  const float level_unit = level_unit_of<Bits>(group_bits(codes, groups.block()));
  const float inverse_scale = own_inverse_sigma * product * static_cast<float>(group);
  float scale = coded ? level_unit * fast_reciprocal(inverse_scale) : 0.0F;
  if (bf16_stats) scale = math::bf16_stochastic(scale, math::scale_noise(key, static_cast<std::uint64_t>(g)));
  const bool representable = mean.finite() && own_squares <= kLargest;
  store_stats(dst.stats_section, g, dst.stats,
              {representable ? mean.value() + 0.0F : math::float_of(math::kNanF32), scale});
}

/// Any tile, with its elements staged unless they are dense.
template <DType Type, int Bits, class Access>
__device__ __forceinline__ void encode_any_tile(const Access& src, const RotatedBuffer& dst, math::HashKey key,
                                                std::int64_t tile, int lane) {
  const int group = dst.geometry.group;
  const TileCodes<Bits, false> codes(dst, group, tile, lane);
  with_source<Storage<Type>>(src, dst.geometry, tile, [&](const auto& elements) {
    encode_tile<Type, Bits, false>(elements, dst, codes, group, key, tile, lane);
  });
}

/// The same, not inlined: inside a kernel for full tiles it would cost their code registers.
template <DType Type, int Bits, class Access>
__device__ __noinline__ void encode_ragged_tile(const Access& src, const RotatedBuffer& dst, math::HashKey key,
                                                std::int64_t tile, int lane) {
  encode_any_tile<Type, Bits>(src, dst, key, tile, lane);
}

template <DType Type, int Bits, int Group, class Access>
__global__ void __launch_bounds__(kThreads, (Type == DType::f32 ? 7 : Access::kDense ? 8 : 6) -
                                                (Bits == kRunTimeBits ? 1 : 0))
    rotated_encode_kernel(const __grid_constant__ Access src, const __grid_constant__ RotatedBuffer dst,
                          const __grid_constant__ KernelSeed seed, const __grid_constant__ Padding padding) {
  padding.zero();
  if constexpr (Bits == kRunTimeBits) dst.table.zero_rest();
  const math::HashKey key = seed.key();
  on_tile(dst.tiles, [&](std::int64_t tile, int lane) {
    if constexpr (Access::kDense) {
      const TileCodes<Bits, true> codes(dst, Group, tile, lane);
      if (codes.whole() && (tile + 1) * kTile <= dst.geometry.elems) {
        return encode_tile<Type, Bits, true>(src, dst, codes, Group, key, tile, lane);
      }
      encode_ragged_tile<Type, Bits>(src, dst, key, tile, lane);
    } else {
      encode_any_tile<Type, Bits>(src, dst, key, tile, lane);
    }
  });
}

/// Any tile, with its elements staged unless they are dense.
template <DType Type, int Bits, class Access>
__device__ __forceinline__ void decode_any_tile(const RotatedBuffer& src, const Access& dst, math::HashKey key,
                                                std::int64_t tile, int lane) {
  const int group = src.geometry.group;
  const Rotation<HalfHadamard> rotation(key, tile, lane, group);
  const TileCodes<Bits, false> codes(src, group, tile, lane);
  LevelTable<Bits> table;
  with_target<Storage<Type>>(dst, src.geometry, tile, [&](const auto& target) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      EncodedChunk<Bits> in = {};
      if (slot_exists<false>(src.geometry, tile, b, lane)) {
        with_width<Bits, Rotated::kMostBits>(codes.bits(b), [&]<int Width>() {
          in.codes = static_cast<EightCodes<Width>>(load_codes<Width>(codes.at(b), Width));
        });
      }
      table.choose(codes.bits(b));
      const LanePlace at = lane_place<false>(src, group, tile, b, lane);
      if (at.count > 0) in.stats = load_stats(src.stats_section, at.g, src.stats);
      auto chunk = rotated_decode_chunk<Type, Bits>(in, b, table, rotation);
      if (at.count <= 0) continue;
      if (math::is_nan(in.stats.first)) fill_nan<Type>(chunk.w);
      if (src.has_mask()) keep_masked<Type>(chunk, static_cast<std::uint32_t>(*at.mask));
      target.store(at.first, at.count, chunk);
    }
  });
}

/// The same, not inlined, like encode_ragged_tile().
template <DType Type, int Bits, class Access>
__device__ __noinline__ void decode_ragged_tile(const RotatedBuffer& src, const Access& dst, math::HashKey key,
                                                std::int64_t tile, int lane) {
  decode_any_tile<Type, Bits>(src, dst, key, tile, lane);
}

/// What a target reads itself, such as a gradient, loaded along with the codes of a tile. Other targets read nothing.
template <class Access>
class ReadAhead {
 public:
  __device__ ReadAhead(const Access& /*dst*/, std::int64_t /*first*/) {}

  template <class Chunk>
  __device__ void store(const Access& dst, std::int64_t first, int block, const Chunk& chunk) const {
    dst.store_full(first, block * kBlock, chunk);
  }
};

template <class Access>
  requires requires { typename Access::Ahead; }
class ReadAhead<Access> {
 public:
  __device__ ReadAhead(const Access& dst, std::int64_t first) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) read_[b] = dst.load_ahead(first + b * kBlock);
  }

  template <class Chunk>
  __device__ void store(const Access& dst, std::int64_t first, int block, const Chunk& chunk) const {
    dst.store_full(first, block * kBlock, chunk, read_[block]);
  }

 private:
  typename Access::Ahead read_[kBlocks];
};

/// A full tile. One with an unrepresentable group is left to decode_ragged_tile().
template <DType Type, int Bits, class Access>
__device__ __forceinline__ void decode_full_tile(const RotatedBuffer& src, const TileCodes<Bits, true>& codes,
                                                 const Access& dst, int group, math::HashKey key, std::int64_t tile,
                                                 int lane) {
  const TileStats tile_stats(src.stats_section, src.stats, group, tile, lane);
  const std::int64_t first = tile * kTile + lane * kChunk;
  const ReadAhead<Access> ahead(dst, first);
  EncodedChunk<Bits> in[kBlocks];
  std::uint32_t masks[kBlocks] = {};
  codes.for_each_width([&]<int Width>() {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      in[b].codes = static_cast<EightCodes<Width>>(load_codes<Width>(codes.at(b), Width));
    }
  });
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    if (src.has_mask()) masks[b] = static_cast<std::uint32_t>(*lane_place<true>(src, group, tile, b, lane).mask);
  }
  if (tile_stats.any_nan()) return decode_ragged_tile<Type, Bits>(src, dst, key, tile, lane);
  const Rotation<HalfHadamard> rotation(key, tile, lane, group);
  LevelTable<Bits> table;
  table.choose(codes.bits(0));
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    in[b].stats = tile_stats.of(b * kBlock + lane * kChunk);
    auto chunk = rotated_decode_chunk<Type, Bits>(in[b], b, table, rotation);
    if (src.has_mask()) keep_masked<Type>(chunk, masks[b]);
    ahead.store(dst, first, b, chunk);
  }
}

/// How many thread blocks a multiprocessor should hold; this limits the registers.
template <DType Type, int Bits, class Access>
constexpr int decode_blocks() {
  if constexpr (requires { Access::kBlocksOfMultiprocessor; }) return Access::kBlocksOfMultiprocessor;
  if (Bits == kRunTimeBits || !Access::kDense) return 8;
  return Type == DType::f32 ? 10 : 14;
}

template <DType Type, int Bits, int Group, class Access>
__global__ void __launch_bounds__(kThreads, (decode_blocks<Type, Bits, Access>()))
    rotated_decode_kernel(const __grid_constant__ RotatedBuffer src, const __grid_constant__ Access dst,
                          const __grid_constant__ KernelSeed seed) {
  const math::HashKey key = seed.key();
  on_tile(src.tiles, [&](std::int64_t tile, int lane) {
    if constexpr (Access::kDense) {
      const TileCodes<Bits, true> codes(src, Group, tile, lane);
      if (codes.whole() && (tile + 1) * kTile <= src.geometry.elems) {
        return decode_full_tile<Type, Bits>(src, codes, dst, Group, key, tile, lane);
      }
      decode_ragged_tile<Type, Bits>(src, dst, key, tile, lane);
    } else {
      decode_any_tile<Type, Bits>(src, dst, key, tile, lane);
    }
  });
}

}  // namespace actzip::cuda
