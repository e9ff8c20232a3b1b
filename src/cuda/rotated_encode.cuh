// The steps of encoding `rotated`.
#pragma once

#include <cstdint>

#include "cuda/chunk.cuh"
#include "cuda/hadamard.cuh"
#include "cuda/level_table.cuh"
#include "cuda/rotated_tile.cuh"
#include "cuda/segment_bits.cuh"
#include "cuda/values.cuh"
#include "format/bits.hpp"

namespace actzip::cuda {

/// A group's mean in the form that residual() needs. Means of 16-bit elements are bf16 numbers; they are kept as a pair
/// of equal ones.
template <DType Type>
class Mean {
 public:
  Mean() = default;
  __device__ explicit Mean(float mean)
      : word_(Type == DType::f32 ? math::bits_of(mean) : as_word(__floats2bfloat162_rn(mean, mean))) {}

  [[nodiscard]] __device__ float value() const {
    return math::float_of(Type == DType::f32 ? word_ : word_ & 0xffff0000U);
  }
  [[nodiscard]] __device__ bool finite() const { return fabsf(value()) < math::float_of(0x7f800000U); }
  [[nodiscard]] __device__ std::uint32_t pair() const { return word_; }

 private:
  std::uint32_t word_;
};

/// The elements minus their mean, with their signs. Absent elements are 0. For 16-bit types element and mean are the
/// two terms themselves, so that nothing is rounded.
template <DType Type>
[[nodiscard]] __device__ __forceinline__ Terms residual(const Chunk<Storage<Type>>& chunk, Mean<Type> mean, int count,
                                                        const TileSigns& signs, int block) {
  Terms terms;
  if constexpr (Type != DType::f32) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      terms.w[0][k] = flip_pair(chunk.w[k], signs.of_pair(block, k));
      terms.w[1][k] = flip_others(mean.pair(), signs.of_pair(block, k));
    }
  } else {
    float values[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) values[i] = widen<Type>(chunk, i) - mean.value();
    terms = Terms(values);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      terms.w[0][k] = flip_pair(terms.w[0][k], signs.of_pair(block, k));
      terms.w[1][k] = flip_pair(terms.w[1][k], signs.of_pair(block, k));
    }
  }
  if (count < kChunk) {  // never in full tiles, where count is the constant 8
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const std::uint32_t present = (2 * k < count ? 0xffffU : 0U) | (2 * k + 1 < count ? 0xffff0000U : 0U);
      terms.w[0][k] &= present;
      terms.w[1][k] &= present;
    }
  }
  return terms;
}

/// The factor that quantize_pairs() applies to levels. With 2 and 3 bits it is chosen such that the products, which are
/// f16 numbers, contain the number of the level in their bits: from bit 14 - kNumberShift downwards.
template <int Bits>
inline constexpr float kLevelUnit = Bits == 2   ? 2.0F
                                    : Bits == 3 ? 0.625F
                                                : 1.0F;
/// The same if the width is known only at run time.
template <int Bits>
[[nodiscard]] __device__ __forceinline__ float level_unit_of(int own) {
  if constexpr (Bits != kRunTimeBits) return kLevelUnit<Bits>;
  return own == 2 ? kLevelUnit<2> : own == 3 ? kLevelUnit<3> : kLevelUnit<1>;
}

template <int Bits>
inline constexpr int kNumberShift = Bits == 3 ? 3 : 0;

template <int Bits>
[[nodiscard]] ACTZIP_HD constexpr float unit_level(int i) {
  return math::level<Bits>(i) * kLevelUnit<Bits>;
}

/// Whether level `i` and those above it are exact in f16, contain their number in their bits, and lead to the next
/// level by one addition.
template <int Bits>
[[nodiscard]] ACTZIP_HD constexpr bool is_readable(int i) {
  const std::uint32_t bits = math::f32_to_f16(unit_level<Bits>(i));
  const bool exact = math::f16_to_f32(bits) == unit_level<Bits>(i);
  const bool numbered = ((bits << kNumberShift<Bits>)&0x7fffU) >> (16 - Bits) == static_cast<std::uint32_t>(i);
  if (i + 1 == math::kLevelCount<Bits>) return exact && numbered;
  const float step = math::f16_to_f32(math::f32_to_f16(unit_level<Bits>(i + 1) - unit_level<Bits>(i)));
  const bool leads = math::f16_to_f32(math::f32_to_f16(unit_level<Bits>(i) + step)) == unit_level<Bits>(i + 1);
  return exact && numbered && leads && is_readable<Bits>(i + 1);
}

/// The levels of a pair of coefficients with root mean square 1, times kLevelUnit, for 1 to 3 bits. Uses only products
/// and sums, because the other steps consist of comparisons and logic. The first product is so steep that a magnitude
/// just above a cut exceeds 1, where it saturates.
template <int Bits>
[[nodiscard]] __device__ __forceinline__ __half2 readable_levels(__half2 magnitude) {
  static_assert(is_readable<Bits>(0));
  constexpr float kSteep = 0x1p14F;
  __half2 levels = __float2half2_rn(unit_level<Bits>(0));
#pragma unroll
  for (int cut = 0; cut + 1 < math::kLevelCount<Bits>; ++cut) {
    const __half2 above =
        __hfma2_sat(magnitude, __float2half2_rn(kSteep), __float2half2_rn(-kSteep * math::level_cut<Bits>(cut)));
    levels = __hfma2(above, __float2half2_rn(unit_level<Bits>(cut + 1) - unit_level<Bits>(cut)), levels);
  }
  return levels;
}

/// The number of a magnitude's level with 4 bits. A parabola of the magnitude is close to 1, 2 and so on at the cuts,
/// and its integer part is the number. That takes three operations, instead of two for each of seven cuts.
struct LevelNumber {
  static constexpr float kSlope = 0.375F;
  static constexpr float kStart = -0.0132F;
  static constexpr float kRise = 11.65F;
  static constexpr float kBend = -4.243F;
  static constexpr float kBase = 64.0F;  ///< f16 numbers there count sixteenths: bits 4 to 6 are the number

  [[nodiscard]] __device__ static std::uint32_t of_pair(__half2 magnitude) {
    const __half2 x = __hfma2_sat(magnitude, __float2half2_rn(kSlope), __float2half2_rn(kStart));
    const __half2 slope = __hfma2(x, __float2half2_rn(kBend), __float2half2_rn(kRise));
    return as_word(__hfma2(x, slope, __float2half2_rn(kBase)));
  }

  [[nodiscard]] static constexpr float rounded(float x) { return math::f16_to_f32(math::f32_to_f16(x)); }
  /// The same for one magnitude, at compile time.
  [[nodiscard]] static constexpr int of(float magnitude) {
    const float line = magnitude * rounded(kSlope) + rounded(kStart);
    const float x = rounded(line < 0.0F ? 0.0F : line > 1.0F ? 1.0F : line);
    return static_cast<int>(rounded(x * rounded(x * rounded(kBend) + rounded(kRise)) + kBase) - kBase);
  }
  /// Whether numbers are right from cut `i` on, except within half the distance from a cut that the format allows.
  [[nodiscard]] static constexpr bool fits(int i) {
    if (i == math::kLevelCount<4> - 1) return of(0.0F) == 0 && of(65504.0F) == i;
    const float cut = math::level_cut<4>(i);
    const float near = 0x1p-7F * (cut > 1.0F ? cut : 1.0F);
    return of(cut - near) == i && of(cut + near) == i + 1 && fits(i + 1);
  }
};
static_assert(LevelNumber::fits(0));

/// The codes of eight coefficients with 1 or 2 bits. The four words of pairs have them in the highest bits of each
/// half, with zeros below. Shifted and added, they leave two runs, of even and of odd coefficients, which one product
/// joins.
template <int Bits>
[[nodiscard]] __device__ __forceinline__ std::uint32_t quantize_few(const std::uint32_t (&y)[4], __half2& product) {
  constexpr std::uint32_t kHighest = 0x00010001U * (0xffffU & ~(0xffffU >> Bits));
  std::uint32_t runs = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const __half2 magnitude = __habs2(as_packed<__half2>(y[k]));
    const __half2 levels = readable_levels<Bits>(magnitude);
    product = __hfma2(magnitude, levels, product);
    // If the highest bit of a magnitude is 1, the magnitude is at least 2, so the highest bit of its level is 1, too.
    runs = join_bits(y[k], as_word(levels), kHighest) + (runs >> 2 * Bits);
  }
  return __umulhi(runs, (1U << (16 + 7 * Bits)) + (1U << 8 * Bits));
}

/// The codes with 3 bits: the signs, and the numbers that are read from the bits of the levels.
[[nodiscard]] __device__ __forceinline__ std::uint32_t quantize_three(const std::uint32_t (&y)[4], __half2& product) {
  std::uint32_t bytes[2];
#pragma unroll
  for (int quad = 0; quad < 2; ++quad) {
    __half2 levels[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const __half2 magnitude = __habs2(as_packed<__half2>(y[2 * quad + k]));
      levels[k] = readable_levels<3>(magnitude);
      product = __hfma2(magnitude, levels[k], product);
    }
    const std::uint32_t signs = __byte_perm(y[2 * quad], y[2 * quad + 1], 0x7531);
    const std::uint32_t fields = __byte_perm(as_word(levels[0]), as_word(levels[1]), 0x7531) << kNumberShift<3>;
    bytes[quad] = select_bits(signs, fields, 0x80808080U) & 0xe0e0e0e0U;
  }
  return static_cast<std::uint32_t>(pack_bytes<3, 5>(bytes[0], bytes[1]));
}

/// The codes with 4 bits: signs and numbers, by which the levels are then looked up.
[[nodiscard]] __device__ __forceinline__ std::uint32_t quantize_four(const std::uint32_t (&y)[4], __half2& product) {
  __half2 magnitudes[4];
  std::uint32_t numbers[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    magnitudes[k] = __habs2(as_packed<__half2>(y[k]));
    numbers[k] = LevelNumber::of_pair(magnitudes[k]);
  }
  std::uint32_t bytes[2];
#pragma unroll
  for (int quad = 0; quad < 2; ++quad) {
    const std::uint32_t signs = __byte_perm(y[2 * quad], y[2 * quad + 1], 0x7531);
    const std::uint32_t fields = __byte_perm(numbers[2 * quad], numbers[2 * quad + 1], 0x6420);
    bytes[quad] = select_bits(signs, fields, 0x80808080U) & 0xf0f0f0f0U;
  }
  const auto codes = static_cast<std::uint32_t>(pack_bytes<4, 4>(bytes[0], bytes[1]));
  std::uint32_t levels[4];
  const LevelTable<4> table;
  table.expand_magnitudes(codes, levels);
#pragma unroll
  for (int k = 0; k < 4; ++k) product = __hfma2(magnitudes[k], as_packed<__half2>(levels[k]), product);
  return codes;
}

/// The codes of eight coefficients of a group with root mean square 1, computed two at a time. Only the lowest 8 * Bits
/// bits are defined. `product` becomes two partial sums of |y| * level * kLevelUnit.
template <int Bits>
[[nodiscard]] __device__ __forceinline__ EightCodes<Bits> quantize_pairs(const std::uint32_t (&y)[4],
                                                                         __half2& product) {
  product = as_packed<__half2>(0U);
  if constexpr (Bits <= 2) return quantize_few<Bits>(y, product);
  if constexpr (Bits == 3) return quantize_three(y, product);
  if constexpr (Bits == 4) return quantize_four(y, product);
}

/// Turns the numbers of one block into codes. After the first product, the numbers of a group are scaled to a common
/// size, so that f16 suffices; the coefficients then have a root mean square of 1, and the cuts are constants.
template <DType Type>
class TileEncoder {
 public:
  __device__ TileEncoder(math::HashKey key, std::int64_t tile, int lane, int group)
      : rotation_(key, tile, lane, group), spatial_sums_(lane, group), unit_(group == 256 ? 0x1p-6F : 0x1p-5F) {}

  [[nodiscard]] __device__ const TileSigns& signs() const { return rotation_.first; }

  /// The sum of this lane's group in each block.
  __device__ void sums(const Chunk<Storage<Type>> (&chunks)[kBlocks], float (&out)[kBlocks]) const {
    if constexpr (Type == DType::f32) {
      float own[kBlocks] = {};
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int i = 0; i < kChunk; ++i) own[b] += widen<Type>(chunks[b], i);
      }
      const float sum = spatial_sums_.reduce(own);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) out[b] = spatial_sums_.of_block(sum, b);
    } else {
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) out[b] = rotation_.hadamard.sum(chunks[b]);
    }
  }

  /// The first product: numbers in coefficient layout whose squares add up to those of the final coefficients.
  __device__ void start(const Terms& in, float (&y)[kChunk]) const { rotation_.hadamard.start(in, y); }

  /// The factor for the results of start(), which scales the coefficients to a root mean square of 1: start() and the
  /// remaining transforms enlarge them by 1 / unit_.
  [[nodiscard]] __device__ float unit(float inverse_sigma) const { return inverse_sigma * unit_; }

  /// Returns the codes. `product` becomes two partial sums of |y| * level * kLevelUnit, in units of the root mean
  /// square.
  template <int Bits>
  [[nodiscard]] __device__ EightCodes<Bits> finish(const float (&y)[kChunk], float unit, int block,
                                                   __half2& product) const {
    std::uint32_t pairs[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) pairs[k] = as_word(__floats2half2_rn(y[2 * k] * unit, y[2 * k + 1] * unit));
    rotation_.hadamard.finish_forward(pairs);
#pragma unroll
    for (int k = 0; k < 4; ++k) pairs[k] = flip_pair(pairs[k], rotation_.second.of_pair(block, k));
    rotation_.hadamard.backward(pairs);
    return quantize_pairs<Bits>(pairs, product);
  }

 private:
  Rotation<EncodingHadamard<Type>> rotation_;
  GroupSums<Layout::spatial> spatial_sums_;
  float unit_;
};

/// Which of eight elements are not zero, one bit each. Bits above the lowest eight are undefined.
template <DType Type>
[[nodiscard]] __device__ __forceinline__ std::uint32_t nonzero_bits(const Chunk<Storage<Type>>& chunk) {
  std::uint32_t bits = 0;
  if constexpr (Type == DType::f32) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) bits |= (chunk.w[i] << 1) != 0 ? 1U << i : 0U;
    return bits;
  } else {
    using Packed = std::conditional_t<Type == DType::bf16, __nv_bfloat162, __half2>;
#pragma unroll
    for (int k = 0; k < 4; ++k) {  // masks as wide as the elements, from which the bits needed are selected in place
      const std::uint32_t nonzero = __hneu2_mask(as_packed<Packed>(chunk.w[k]), as_packed<Packed>(0U));
      bits = k == 0 ? nonzero : select_bits(nonzero, bits, 0x00030003U << 2 * k);
    }
    return select_bits(bits, bits >> 16, 0x55555555U);
  }
}

}  // namespace actzip::cuda
