// The steps of `rotated` on one tile: 1,024 padded elements in the registers of a warp, as four *blocks* of 256, eight
// elements of each in every lane. A block is one group of 256 or two of 128.
#pragma once

#include <cstdint>

#include "cuda/chunk.cuh"
#include "cuda/hadamard.cuh"
#include "cuda/launch.cuh"
#include "cuda/values.cuh"
#include "format/bits.hpp"
#include "math/rotated.hpp"

namespace actzip::cuda {

inline constexpr int kBlocks = kChunksPerLane;
inline constexpr int kBlock = kWarp * kChunk;

/// Sums over the groups of a tile. Four sums are reduced together: two exchanges of halves leave one of them in each
/// lane, then three (or two) more steps complete it, instead of five steps for each.
class GroupSums {
 public:
  __device__ GroupSums(int lane, int group) : lane_(lane), split_(group == 128 ? 16 : 0) {}

  /// The block whose sum reduce() leaves in this lane.
  [[nodiscard]] __device__ int block() const { return (lane_ & 1) | ((lane_ >> 1) & 2); }
  /// Whether this lane speaks for its group: one lane in each does.
  [[nodiscard]] __device__ bool speaks() const { return (lane_ & ~5 & ~split_) == 0; }
  /// 1 for the second group of 128 of a block.
  [[nodiscard]] __device__ int half() const { return (lane_ & split_) != 0 ? 1 : 0; }

  [[nodiscard]] __device__ float reduce(const float (&v)[kBlocks]) const {
    const bool odd = (lane_ & 1) != 0;
    const bool upper = (lane_ & 4) != 0;
    const float low = (odd ? v[1] : v[0]) + __shfl_xor_sync(~0U, odd ? v[0] : v[1], 1);
    const float high = (odd ? v[3] : v[2]) + __shfl_xor_sync(~0U, odd ? v[2] : v[3], 1);
    float sum = (upper ? high : low) + __shfl_xor_sync(~0U, upper ? low : high, 4);
#pragma unroll
    for (int bit = 2; bit <= 16; bit *= bit == 2 ? 4 : 2) {
      const float other = __shfl_xor_sync(~0U, sum, bit);
      sum += bit == split_ ? 0.0F : other;
    }
    return sum;
  }

  /// The value that belongs to this lane's group in `block`, from the lanes that reduce() left it in.
  [[nodiscard]] __device__ float of_block(float value, int block) const {
    return __shfl_sync(~0U, value, (block & 1) | ((block & 2) << 1) | (lane_ & split_));
  }

 private:
  int lane_;
  int split_;
};

/// The signs of this lane's 32 numbers, one bit each.
class TileSigns {
 public:
  /// D1, in spatial layout: the lane's own word of the tile.
  __device__ static TileSigns first(math::HashKey key, std::int64_t tile, int lane) {
    return TileSigns(own_word(key, tile, lane));
  }

  /// D2, in coefficient layout, where a lane's numbers are spread over two words: index bit 5 chooses the word, and bit
  /// 0 its half.
  __device__ static TileSigns second(math::HashKey key, std::int64_t tile, int lane) {
    const std::uint32_t own = own_word(key.for_second_signs(), tile, lane);
    const int source = ((lane >> 3) & 3) | ((lane & 3) << 3);
    const std::uint32_t even = __shfl_sync(~0U, own, source);
    const std::uint32_t odd = __shfl_sync(~0U, own, source | 4);
    return TileSigns(__byte_perm(even, odd, (lane & 4) == 0 ? 0x5410U : 0x7632U));
  }

  /// Sign bits of numbers 2k and 2k + 1, at bits 15 and 31 among others.
  [[nodiscard]] __device__ std::uint32_t of_pair(int block, int k) const { return word_ << (15 - (4 * block + k)); }
  /// Sign bit of number `i`, at bit 31.
  [[nodiscard]] __device__ std::uint32_t of_number(int block, int i) const {
    return (word_ << (31 - (16 * (i % 2) + 4 * block + i / 2))) & 0x80000000U;
  }

 private:
  __device__ explicit TileSigns(std::uint32_t word) : word_(word) {}
  __device__ static std::uint32_t own_word(math::HashKey key, std::int64_t tile, int lane) {
    return math::hash_word64(key, static_cast<std::uint64_t>(tile) * kWarp + static_cast<std::uint32_t>(lane));
  }

  std::uint32_t word_;
};

/// The signs and the transform of one tile.
template <class Transform>
struct Rotation {
  Transform hadamard;
  TileSigns first;
  TileSigns second;

  __device__ Rotation(math::HashKey key, std::int64_t tile, int lane, int group)
      : hadamard(lane, group), first(TileSigns::first(key, tile, lane)), second(TileSigns::second(key, tile, lane)) {}
};

/// A bf16 number twice.
[[nodiscard]] __device__ __forceinline__ constexpr std::uint32_t bf16_pair(float x) {
  return (math::bits_of(x) >> 16) * 0x00010001U;
}

/// The nearest bf16 number twice.
[[nodiscard]] __device__ __forceinline__ std::uint32_t nearest_pair(float x) {
  return as_word(__floats2bfloat162_rn(x, x));
}

template <DType Type>
[[nodiscard]] __device__ __forceinline__ float chunk_sum(const Chunk<Storage<Type>>& chunk) {
  if constexpr (Type == DType::bf16) {
    // The mean need not be exact, only the same in encoding and decoding: packed sums are good enough.
    const auto low = __hadd2(as_packed<__nv_bfloat162>(chunk.w[0]), as_packed<__nv_bfloat162>(chunk.w[1]));
    const auto high = __hadd2(as_packed<__nv_bfloat162>(chunk.w[2]), as_packed<__nv_bfloat162>(chunk.w[3]));
    const std::uint32_t pair = as_word(__hadd2(low, high));
    return math::float_of(pair << 16) + math::float_of(pair & 0xffff0000U);
  } else {
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sum += widen<Type>(chunk, i);
    return sum;
  }
}

/// Elements less their mean, with their signs. Absent elements are 0. For bf16 both numbers are terms as they are, so
/// that nothing is rounded; the mean is a bf16 number then.
template <DType Type>
[[nodiscard]] __device__ __forceinline__ Terms<2> residual(const Chunk<Storage<Type>>& chunk, float mean, int count,
                                                           const TileSigns& signs, int block) {
  Terms<2> terms;
  if constexpr (Type == DType::bf16) {
    const std::uint32_t negated = __byte_perm(math::bits_of(-mean), 0, 0x3232);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      terms.w[0][k] = chunk.w[k];
      terms.w[1][k] = negated;
    }
  } else {
    float values[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) values[i] = widen<Type>(chunk, i) - mean;
    terms = Terms<2>(values);
  }
  terms.flip([&](int k) { return signs.of_pair(block, k); });
  if (count < kChunk) {  // a constant of 8 in tiles that are full
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const std::uint32_t present = (2 * k < count ? 0xffffU : 0U) | (2 * k + 1 < count ? 0xffff0000U : 0U);
      terms.w[0][k] &= present;
      terms.w[1][k] &= present;
    }
  }
  return terms;
}

/// Terms kept between the products of a transform: binary32 elements need more than bf16.
template <DType Type>
inline constexpr bool kPrecise = Type == DType::f32;

/// H D2 H, in spatial layout, of numbers that have their first signs.
template <DType Type>
__device__ __forceinline__ void rotate(const Terms<2>& in, const Rotation<Hadamard>& rotation, int block,
                                       float (&y)[kChunk]) {
  constexpr int kTerms = kPrecise<Type> ? 2 : 1;
  float once[kChunk];
  rotation.hadamard.forward<kTerms>(in, once);
  Terms<kTerms> between(once);
  between.flip([&](int k) { return rotation.second.of_pair(block, k); });
  rotation.hadamard.backward<kTerms>(between, y);
}

/// Codes of eight coefficients of a group with root mean square `sigma`; `product` becomes the sum of |y| * level.
template <int Bits>
[[nodiscard]] __device__ __forceinline__ std::uint32_t quantize_coefficients(const float (&y)[kChunk], float sigma,
                                                                             float& product) {
  std::uint32_t codes[kChunk];
  product = 0.0F;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const float magnitude = fabsf(y[i]);
    float level = math::level<Bits>(0);
    codes[i] = math::bits_of(y[i]) >> 31 << (Bits - 1);
#pragma unroll
    for (int k = 0; k + 1 < math::kLevelCount<Bits>; ++k) {
      const bool above = magnitude > math::level_cut<Bits>(k) * sigma;
      level = above ? math::level<Bits>(k + 1) : level;
      codes[i] += above ? 1U : 0U;
    }
    product = fmaf(magnitude, level, product);
  }
  return static_cast<std::uint32_t>(format::pack8<Bits>(codes));
}

/// The same in packed bf16, at half the instructions: comparisons give masks, and code and level are read off them. Bit
/// j of a count of cuts changes at every 2^j-th cut, and the level's bits change by the difference of two levels.
template <int Bits>
[[nodiscard]] __device__ __forceinline__ std::uint32_t quantize_packed(const float (&y)[kChunk], float sigma,
                                                                       float& product) {
  constexpr int kCuts = math::kLevelCount<Bits> - 1;
  const std::uint32_t lowest = opaque(bf16_pair(math::level<Bits>(0)));
  std::uint32_t cuts[kCuts + 1];
  std::uint32_t steps[kCuts + 1];
#pragma unroll
  for (int k = 0; k < kCuts; ++k) {
    cuts[k] = nearest_pair(math::level_cut<Bits>(k) * sigma);
    steps[k] = opaque(bf16_pair(math::level<Bits>(k)) ^ bf16_pair(math::level<Bits>(k + 1)));
  }
  std::uint32_t packed = 0;
  auto products = as_packed<__nv_bfloat162>(0U);
#pragma unroll
  for (int quad = 0; quad < 2; ++quad) {
    std::uint32_t halves[2];  // the code in the highest bits of each half
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const std::uint32_t pair = as_word(__floats2bfloat162_rn(y[4 * quad + 2 * k], y[4 * quad + 2 * k + 1]));
      const auto magnitude = as_packed<__nv_bfloat162>(pair & 0x7fff7fffU);
      std::uint32_t level = lowest;
      std::uint32_t planes[Bits] = {};
#pragma unroll
      for (int cut = 0; cut < kCuts; ++cut) {
        const std::uint32_t above = __hgt2_mask(magnitude, as_packed<__nv_bfloat162>(cuts[cut]));
        level ^= steps[cut] & above;
#pragma unroll
        for (int j = 0; j < Bits - 1; ++j) {
          if ((cut + 1) % (1 << j) == 0) planes[j] ^= above;
        }
      }
      products = __hfma2(magnitude, as_packed<__nv_bfloat162>(level), products);
      halves[k] = pair;
#pragma unroll
      for (int j = Bits - 2; j >= 0; --j) {
        constexpr std::uint32_t kHalves = 0x00010001U;
        const std::uint32_t above_plane = kHalves * (0xffffU & ~((1U << (17 - Bits + j)) - 1U));
        halves[k] = (halves[k] & above_plane) | (planes[j] & ~above_plane);
      }
    }
    const std::uint32_t bytes = __byte_perm(halves[0], halves[1], 0x7531) >> (8 - Bits);
    packed |= merge_bytes<Bits>(bytes) << (4 * Bits * quad);
  }
  const std::uint32_t sums = as_word(products);
  product = math::float_of(sums << 16) + math::float_of(sums & 0xffff0000U);
  return packed;
}

/// Which of eight elements are not zero, one bit each.
template <DType Type>
[[nodiscard]] __device__ __forceinline__ std::uint32_t nonzero_bits(const Chunk<Storage<Type>>& chunk) {
  std::uint32_t bits = 0;
  if constexpr (Type == DType::f32) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) bits |= (chunk.w[i] << 1) != 0 ? 1U << i : 0U;
    return bits;
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      // A magnitude that is not 0 carries into bits 15 and 31.
      const std::uint32_t carried = ((chunk.w[k] & 0x7fff7fffU) + 0x7fff7fffU) & 0x80008000U;
      bits |= carried >> (15 - 2 * k);
    }
    return (bits | bits >> 15) & 0xffU;
  }
}

/// Codes as levels with their signs, in bf16 or, for 16-bit output, f16: a table look-up by byte permutes, four codes
/// at a time.
template <int Bits, DType Type>
class LevelTable {
 public:
  __device__ LevelTable() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      low_[half] = opaque(bytes(4 * half, 0));
      high_[half] = opaque(bytes(4 * half, 8));
    }
  }

  __device__ void expand(std::uint32_t packed, std::uint32_t (&words)[4]) const {
    const std::uint32_t nibbles = spread(packed);
#pragma unroll
    for (int quad = 0; quad < 2; ++quad) {
      const std::uint32_t select = nibbles >> (16 * quad);
      const std::uint32_t entries = Bits < 4 ? select : select & 0x7777U;
      const std::uint32_t low = __byte_perm(low_[0], low_[1], entries);
      std::uint32_t high = __byte_perm(high_[0], high_[1], entries);
      if constexpr (Bits == 4) {  // eight entries hold the magnitudes only
        high ^=
            ((select & 0x8U) << 4) | ((select & 0x80U) << 8) | ((select & 0x800U) << 12) | ((select & 0x8000U) << 16);
      }
      words[2 * quad] = __byte_perm(low, high, 0x5140);
      words[2 * quad + 1] = __byte_perm(low, high, 0x7362);
    }
  }

 private:
  /// Bits of table entry `i`: codes in order, or for 4 bits the magnitudes.
  __device__ static constexpr std::uint32_t entry(int i) {
    constexpr int kCount = math::kLevelCount<Bits>;
    const float level = math::level<Bits>(i % kCount);
    const std::uint32_t bits = kPrecise<Type> ? math::f32_to_bf16(level) : math::f32_to_f16(level);
    return Bits < 4 && (i / kCount) % 2 == 1 ? bits | 0x8000U : bits;
  }
  /// Bytes of four entries, from bit `shift` of each.
  __device__ static constexpr std::uint32_t bytes(int first, int shift) {
    std::uint32_t result = 0;
    for (int i = 0; i < 4; ++i) result |= ((entry(first + i) >> shift) & 0xffU) << (8 * i);
    return result;
  }
  /// Eight codes, one in each nibble: the upper half of 8, then of 4, then of 2 codes moves to where it belongs.
  __device__ static std::uint32_t spread(std::uint32_t codes) {
    if constexpr (Bits == 4) return codes;
    codes = part<4>(codes, 0x00000001U);
    codes = part<2>(codes, 0x00010001U);
    return part<1>(codes, 0x01010101U);
  }
  template <int Codes>
  __device__ static std::uint32_t part(std::uint32_t codes, std::uint32_t fields) {
    const std::uint32_t lower = fields * ((1U << (Codes * Bits)) - 1U);
    return (codes & lower) | ((codes << ((4 - Bits) * Codes)) & (lower << (4 * Codes)));
  }

  std::uint32_t low_[2];
  std::uint32_t high_[2];
};

/// What decoding one block needs: all four are read before the first is used.
struct EncodedChunk {
  std::uint32_t codes;
  Stats stats;
  std::uint32_t mask;  ///< bit i: whether element i is kept
};

/// The transform that decodes to a type.
template <DType Type>
using DecodingTransform = std::conditional_t<kPrecise<Type>, Hadamard, HalfHadamard>;

/// D1 H D2 H of the levels of one block, in spatial layout.
template <DType Type, int Bits>
__device__ __forceinline__ void rotate_back(std::uint32_t codes, int block, const LevelTable<Bits, Type>& table,
                                            const Rotation<DecodingTransform<Type>>& rotation,
                                            float (&values)[kChunk]) {
  const auto first = [&](int k) { return rotation.first.of_pair(block, k); };
  const auto second = [&](int k) { return rotation.second.of_pair(block, k); };
  Terms<1> levels;
  table.expand(codes, levels.w[0]);
  if constexpr (kPrecise<Type>) {
    // Sums of levels are small integers of a small unit: with these numbers of terms only the last places are lost.
    rotation.hadamard.template forward<2>(levels, values);
    Terms<3> between(values);
    between.flip(second);
    rotation.hadamard.template backward<3>(between, values);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      values[i] = math::float_of(math::bits_of(values[i]) ^ rotation.first.of_number(block, i));
    }
  } else {
    rotation.hadamard.forward(levels.w[0]);
    levels.flip(second);
    rotation.hadamard.backward(levels.w[0]);
    levels.flip(first);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const auto pair = as_packed<__half2>(levels.w[0][k]);
      values[2 * k] = __low2float(pair);
      values[2 * k + 1] = __high2float(pair);
    }
  }
}

/// Eight elements of one block, decoded into registers in spatial layout. All lanes take part.
template <DType Type, int Bits>
[[nodiscard]] __device__ __forceinline__ Chunk<Storage<Type>> rotated_decode_chunk(
    const EncodedChunk& in, int block, const LevelTable<Bits, Type>& table,
    const Rotation<DecodingTransform<Type>>& rotation) {
  float values[kChunk];
  rotate_back<Type, Bits>(in.codes, block, table, rotation, values);
  if (math::is_nan(in.stats.first)) return nan_chunk<Type>();
#pragma unroll
  for (float& x : values) x = fmaf(x, in.stats.second, in.stats.first);
  return narrow<Type>(values);
}

/// Sets the elements whose bit of `mask` is 0 to 0.
template <DType Type>
__device__ __forceinline__ void keep_masked(Chunk<Storage<Type>>& chunk, std::uint32_t mask) {
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const std::uint32_t keep = 0U - ((mask >> i) & 1U);
    if constexpr (Type == DType::f32) {
      chunk.w[i] &= keep;
    } else {
      chunk.w[i / 2] &= keep | (i % 2 == 0 ? 0xffff0000U : 0xffffU);
    }
  }
}

}  // namespace actzip::cuda
