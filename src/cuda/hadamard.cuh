// The Hadamard transform of 256 numbers (or twice 128) over one warp, eight a lane, on tensor cores.
//
// H256 is H16 times H16: two products of 16 x 16 matrices, the data first as the right and then as the left operand.
// The result of the first has the register layout that the second asks for, so no data crosses lanes. But the two
// layouts differ: write an index as bits i7..i0. In *spatial* layout the eight numbers of a lane are i2 i1 i0 and the
// lane is i7..i3, as they lie in memory. In *coefficient* layout the eight numbers are i2 i1 i5 and the lane is, from
// its highest bit, i4 i3 i0 i7 i6. forward() leads from the first to the second and backward() from the second to the
// first; both are the same transform.
//
// Encoding multiplies bf16 numbers and adds in binary32; numbers that need more bits are sums of several bf16 *terms*.
// Decoding to 16-bit types works in f16.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "cuda/chunk.cuh"
#include "cuda/values.cuh"

namespace actzip::cuda {

/// Eight numbers, each the sum of `Count` bf16 numbers; word k holds numbers 2k and 2k + 1.
template <int Count>
struct Terms {
  std::uint32_t w[Count][4];

  Terms() = default;

  /// The nearest sums: 8 bits of mantissa for each term.
  __device__ explicit Terms(const float (&values)[kChunk]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float low = values[2 * k];
      float high = values[2 * k + 1];
#pragma unroll
      for (int t = 0; t < Count; ++t) {
        w[t][k] = as_word(__floats2bfloat162_rn(low, high));
        low -= math::float_of(w[t][k] << 16);
        high -= math::float_of(w[t][k] & 0xffff0000U);
      }
    }
  }

  /// Flips the signs of the numbers whose bit, 15 or 31, is set in `signs(k)`; other bits of it do not count.
  template <class Signs>
  __device__ void flip(Signs signs) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int t = 0; t < Count; ++t) w[t][k] = flip_pair(w[t][k], signs(k));
    }
  }
};

/// One of the two factors, in the register layout of a left operand of 16-bit numbers; the first two words and the last
/// two are also its halves as a right operand. `One` is a pair of ones.
template <std::uint32_t One>
struct HadamardFactor {
  std::uint32_t w[4];

  /// Index bits in `kept` are not transformed. The matrix is symmetric, and rows and columns 8 to 15 repeat 0 to 7,
  /// negated where both are: one pair of entries makes all that a lane holds.
  __device__ HadamardFactor(int lane, int kept) {
    const int row = lane / 4;
    const int column = lane % 4 * 2;
    const std::uint32_t sign = (static_cast<std::uint32_t>(__popc(row & column & ~kept)) & 1U) * kNegative;
    const std::uint32_t ones = One ^ sign ^ (static_cast<std::uint32_t>(row & 1) << 31);
    const std::uint32_t pair = ((row ^ column) & kept) != 0 ? 0U : ones;
    for (int i = 0; i < 3; ++i) w[i] = opaque(pair);
    w[3] = opaque(pair ^ kNegative);
  }

 private:
  static constexpr std::uint32_t kNegative = 0x80008000U;
};

/// For groups of 128 index bit 7 is not transformed: it is bit 2 of one of the factors.
__device__ __forceinline__ int kept_bits(int group) { return group == 128 ? 4 : 0; }

/// The transform in bf16 terms, for encoding and for binary32 output.
class Hadamard {
 public:
  __device__ Hadamard(int lane, int group) : full_(lane, 0), partial_(lane, kept_bits(group)) {}

  /// `Middle`: terms kept between the two products.
  template <int Middle, int Count>
  __device__ void forward(const Terms<Count>& in, float (&out)[kChunk]) const {
    products<Middle>(full_, partial_, in, out);
  }
  template <int Middle, int Count>
  __device__ void backward(const Terms<Count>& in, float (&out)[kChunk]) const {
    products<Middle>(partial_, full_, in, out);
  }

 private:
  using Factor = HadamardFactor<0x3f803f80U>;

  template <int Middle, int Count>
  __device__ static void products(const Factor& left, const Factor& right, const Terms<Count>& in,
                                  float (&out)[kChunk]) {
    float first[kChunk] = {};
#pragma unroll
    for (int t = 0; t < Count; ++t) {
      multiply_add(left.w, in.w[t][0], in.w[t][1], first);
      multiply_add(left.w, in.w[t][2], in.w[t][3], first + 4);
    }
    const Terms<Middle> middle(first);
#pragma unroll
    for (float& x : out) x = 0.0F;
#pragma unroll
    for (int t = 0; t < Middle; ++t) {
      multiply_add(middle.w[t], right.w[0], right.w[1], out);
      multiply_add(middle.w[t], right.w[2], right.w[3], out + 4);
    }
  }

  __device__ static void multiply_add(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, float* d) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }

  Factor full_;
  Factor partial_;
};

/// The transform in f16, for decoding to 16-bit types: results come packed, so that nothing is converted between the
/// products. Levels are exact in f16, and no sum of 256 of them, twice transformed, reaches its limit.
class HalfHadamard {
 public:
  __device__ HalfHadamard(int lane, int group) : full_(lane, 0), partial_(lane, kept_bits(group)) {}

  /// In place.
  __device__ void forward(std::uint32_t (&pairs)[4]) const { products(full_, partial_, pairs); }
  __device__ void backward(std::uint32_t (&pairs)[4]) const { products(partial_, full_, pairs); }

 private:
  using Factor = HadamardFactor<0x3c003c00U>;

  __device__ static void products(const Factor& left, const Factor& right, std::uint32_t (&pairs)[4]) {
    std::uint32_t middle[4];
    multiply(left.w, pairs[0], pairs[1], middle);
    multiply(left.w, pairs[2], pairs[3], middle + 2);
    multiply(middle, right.w[0], right.w[1], pairs);
    multiply(middle, right.w[2], right.w[3], pairs + 2);
  }

  __device__ static void multiply(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, std::uint32_t* d) {
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %8};"
        : "=r"(d[0]), "=r"(d[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(0));
  }

  Factor full_;
  Factor partial_;
};

}  // namespace actzip::cuda
