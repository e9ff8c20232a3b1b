// The steps of decoding `rotated`.
#pragma once

#include <cstdint>

#include "cuda/chunk.cuh"
#include "cuda/hadamard.cuh"
#include "cuda/rotated_tile.cuh"
#include "cuda/values.cuh"

namespace actzip::cuda {

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
    if constexpr (Bits <= 2) return join_bits(codes, codes << ((4 - Bits) * Codes), lower | lower << (4 * Codes));
    return (codes & lower) | ((codes << ((4 - Bits) * Codes)) & (lower << (4 * Codes)));
  }

  std::uint32_t low_[2];
  std::uint32_t high_[2];
};

/// What is kept of one block.
struct EncodedChunk {
  std::uint32_t codes;
  Stats stats;
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

/// Eight elements of one block, decoded into registers in spatial layout, if their group is not NaN. All lanes take
/// part.
template <DType Type, int Bits>
[[nodiscard]] __device__ __forceinline__ Chunk<Storage<Type>> rotated_decode_chunk(
    const EncodedChunk& in, int block, const LevelTable<Bits, Type>& table,
    const Rotation<DecodingTransform<Type>>& rotation) {
  float values[kChunk];
  rotate_back<Type, Bits>(in.codes, block, table, rotation, values);
#pragma unroll
  for (float& x : values) x = fmaf(x, in.stats.second, in.stats.first);
  Chunk<Storage<Type>> chunk;
  narrow<Type>(values, chunk.w);
  return chunk;
}

/// Sets the elements whose bit of `mask` is 0 to 0.
template <DType Type>
__device__ __forceinline__ void keep_masked(Chunk<Storage<Type>>& chunk, std::uint32_t mask) {
  if constexpr (Type == DType::f32) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) chunk.w[i] &= 0U - ((mask >> i) & 1U);
  } else {
    const std::uint32_t apart = mask | mask << 15;  // the bits of a pair 16 apart; the product makes them as wide as it
#pragma unroll
    for (int k = 0; k < 4; ++k) chunk.w[k] &= ((apart >> 2 * k) & 0x00010001U) * 0xffffU;
  }
}

}  // namespace actzip::cuda
