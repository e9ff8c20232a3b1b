// What encoding and decoding of `rotated` share. A warp works on one tile: 1,024 padded elements in its registers, as
// four *blocks* of 256, with eight elements of each block in every lane. A block is one group of 256 or two of 128.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/launch.cuh"
#include "math/rotated.hpp"

namespace actzip::cuda {

inline constexpr int kBlocks = kChunksPerLane;
inline constexpr int kBlock = kWarp * kChunk;

/// How the 256 numbers of a block are distributed over a warp: see hadamard.cuh.
enum class Layout : std::uint8_t { spatial, coefficient };

/// Sums over the groups of a tile. Four sums are reduced together: two exchanges of halves leave one of them in each
/// lane, and three more steps (two for groups of 128) complete it, instead of five steps for each sum.
template <Layout In>
class GroupSums {
 public:
  __device__ GroupSums(int lane, int group) : lane_(lane), split_(group == 128 ? kSplit : 0) {}

  /// The block whose sum reduce() leaves in this lane; half() is 1 for the second group of 128 in it.
  [[nodiscard]] __device__ int block() const { return (lane_ & 1) | ((lane_ >> 1) & 2); }
  [[nodiscard]] __device__ int half() const { return (lane_ & split_) != 0 ? 1 : 0; }
  /// Whether this lane writes the results of its group: one lane of each group does.
  [[nodiscard]] __device__ bool speaks() const { return (lane_ & ~5 & ~split_) == 0; }

  [[nodiscard]] __device__ float reduce(const float (&v)[kBlocks]) const {
    const bool odd = (lane_ & 1) != 0;
    const bool upper = (lane_ & 4) != 0;
    const float low = (odd ? v[1] : v[0]) + __shfl_xor_sync(~0U, odd ? v[0] : v[1], 1);
    const float high = (odd ? v[3] : v[2]) + __shfl_xor_sync(~0U, odd ? v[2] : v[3], 1);
    float sum = (upper ? high : low) + __shfl_xor_sync(~0U, upper ? low : high, 4);
#pragma unroll
    for (int bit = 2; bit <= 16; bit *= bit == 2 ? 4 : 2) {
      const float other = __shfl_xor_sync(~0U, sum, bit);
      sum += bit == kSplit && split_ != 0 ? 0.0F : other;
    }
    return sum;
  }

  /// The same for pairs of f16 numbers, which are added in f16, four at a time.
  [[nodiscard]] __device__ float reduce(const __half2 (&v)[kBlocks]) const {
    const auto joined = [&](__half2 a, __half2 b) { return __hadd2(__lows2half2(a, b), __highs2half2(a, b)); };
    const __half2 even = joined(v[0], v[2]);
    const __half2 odd = joined(v[1], v[3]);
    const bool is_odd = (lane_ & 1) != 0;
    __half2 sum = __hadd2(is_odd ? odd : even, __shfl_xor_sync(~0U, is_odd ? even : odd, 1));
#pragma unroll
    for (int bit = 2; bit <= 16; bit *= 2) {
      const __half2 other = __shfl_xor_sync(~0U, sum, bit);
      if (bit != kSplit || split_ == 0) sum = __hadd2(sum, other);
    }
    return (lane_ & 4) != 0 ? __high2float(sum) : __low2float(sum);
  }

  /// The value of this lane's group in `block`, read from a lane in which reduce() left it.
  [[nodiscard]] __device__ float of_block(float value, int block) const {
    return __shfl_sync(~0U, value, source(block, lane_ & split_));
  }
  /// The value of the same group, from the lane in which reduce() left it in another layout.
  template <Layout From>
  [[nodiscard]] __device__ float from(float value) const {
    return __shfl_sync(~0U, value, source(block(), half() * GroupSums<From>::kSplit));
  }
  /// The same as of_block() for a flag, given the flags of the tile as a ballot in layout `From`.
  template <Layout From>
  [[nodiscard]] __device__ bool flag_of_block(std::uint32_t ballot, int block) const {
    return (ballot >> (half() * GroupSums<From>::kSplit) & (1U << source(block, 0))) != 0;
  }

  static constexpr int kSplit = In == Layout::spatial ? 16 : 2;  ///< the lane bit in which two groups of 128 differ

 private:
  [[nodiscard]] __device__ static constexpr int source(int block, int half_bit) {
    return (block & 1) | ((block & 2) << 1) | half_bit;
  }

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

  /// D2, in coefficient layout, where a lane's numbers are spread over two words: index bit 5 selects the word, and bit
  /// 0 its half.
  __device__ static TileSigns second(math::HashKey key, std::int64_t tile, int lane) {
    const std::uint32_t own = own_word(key.for_second_signs(), tile, lane);
    const int source = ((lane >> 3) & 3) | ((lane & 3) << 3);
    const std::uint32_t even = __shfl_sync(~0U, own, source);
    const std::uint32_t odd = __shfl_sync(~0U, own, source | 4);
    return TileSigns(__byte_perm(even, odd, (lane & 4) == 0 ? 0x5410U : 0x7632U));
  }

  /// The sign bits of numbers 2k and 2k + 1, at bits 15 and 31; the other bits are arbitrary.
  [[nodiscard]] __device__ std::uint32_t of_pair(int block, int k) const { return word_ << (15 - (4 * block + k)); }

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

}  // namespace actzip::cuda
