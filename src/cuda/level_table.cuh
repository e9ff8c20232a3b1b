// Looks up the levels of `rotated` by their codes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/segment_bits.cuh"
#include "cuda/values.cuh"
#include "math/rotated.hpp"

namespace actzip::cuda {

/// A type that holds eight codes.
template <int Bits>
using EightCodes =
    std::conditional_t<(Bits == kRunTimeBits ? Rotated::kMostBits : Bits) <= 4, std::uint32_t, std::uint64_t>;

/// Turns codes into levels with their signs, in f16: a table look-up by byte permutes, four codes at a time.
template <int Bits>
class LevelTable {
 public:
  __device__ LevelTable() {
    constexpr std::uint32_t kLow[2] = {bytes(0, 0), bytes(4, 0)};  // at compile time: otherwise kernels computed them
    constexpr std::uint32_t kHigh[2] = {bytes(0, 8), bytes(4, 8)};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      low_[half] = opaque(kLow[half]);
      high_[half] = opaque(kHigh[half]);
    }
  }

  /// Does nothing: only LevelTable<kRunTimeBits> has a width to choose.
  __device__ void choose(int /*bits*/) {}

  __device__ void expand(EightCodes<Bits> packed, std::uint32_t (&words)[4]) const {
    const std::uint32_t nibbles = spread(packed);
#pragma unroll
    for (int quad = 0; quad < 2; ++quad) {
      const std::uint32_t select = nibbles >> (16 * quad);
      if constexpr (Bits < 4) {
        look_up(select, 0U, words + 2 * quad);
      } else {  // the eight entries hold only magnitudes
        const std::uint32_t signs =
            ((select & 0x8U) << 4) | ((select & 0x80U) << 8) | ((select & 0x800U) << 12) | ((select & 0x8000U) << 16);
        look_up(select & 0x7777U, signs, words + 2 * quad);
      }
    }
  }

  /// The same for 4 bits without signs.
  __device__ void expand_magnitudes(std::uint32_t packed, std::uint32_t (&words)[4]) const {
    static_assert(Bits == 4);
    look_up(packed & 0x7777U, 0U, words);
    look_up((packed >> 16) & 0x7777U, 0U, words + 2);
  }

 private:
  /// Looks up two pairs of levels, whose entries are four nibbles. They are negated where the highest bit of the byte
  /// in `signs` is 1.
  __device__ void look_up(std::uint32_t entries, std::uint32_t signs, std::uint32_t* pairs) const {
    const std::uint32_t low = __byte_perm(low_[0], low_[1], entries);
    const std::uint32_t high = __byte_perm(high_[0], high_[1], entries) ^ signs;
    pairs[0] = __byte_perm(low, high, 0x5140);
    pairs[1] = __byte_perm(low, high, 0x7362);
  }
  /// The f16 bits of table entry `i`. Entries are in the order of the codes; for 4 bits they are the magnitudes.
  __device__ static constexpr std::uint32_t entry(int i) {
    constexpr int kCount = math::kLevelCount<Bits>;
    const float level = math::level<Bits>(i % kCount);
    const std::uint32_t bits = math::f32_to_f16(level);
    return Bits < 4 && (i / kCount) % 2 == 1 ? bits | 0x8000U : bits;
  }
  /// One byte of each of four entries, taken from bit `shift` on.
  __device__ static constexpr std::uint32_t bytes(int first, int shift) {
    std::uint32_t result = 0;
    for (int i = 0; i < 4; ++i) result |= ((entry(first + i) >> shift) & 0xffU) << (8 * i);
    return result;
  }
  /// Spreads eight codes to one per nibble: moves the upper half of 8 codes, then of 4, then of 2.
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

/// The table of the width chosen last. A lane without codes chooses 0.
template <>
class LevelTable<kRunTimeBits> {
 public:
  __device__ void choose(int bits) { bits_ = bits; }

  __device__ void expand(EightCodes<kRunTimeBits> packed, std::uint32_t (&words)[4]) const {
#pragma unroll
    for (std::uint32_t& word : words) word = 0;
    with_width<kRunTimeBits, Rotated::kMostBits>(bits_, [&]<int Width>() {
      const LevelTable<Width> table;
      table.expand(static_cast<EightCodes<Width>>(packed), words);
    });
  }

 private:
  int bits_ = 0;
};

}  // namespace actzip::cuda
