// The Hadamard transform of 256 numbers (or twice 128) over one warp, eight per lane, on tensor cores.
//
// H256 is the Kronecker product of H16 with itself, so it takes two products of 16 x 16 matrices, with the data first
// as the right and then as the left operand. The result of the first product has the register layout that the second
// one needs, so no data crosses lanes. But the layouts of input and output differ. Write an index as bits i7..i0. In
// *spatial* layout the eight numbers of a lane are i2 i1 i0 and the lane is i7..i3, as in memory. In *coefficient*
// layout the eight numbers are i2 i1 i5 and the lane is, from its highest bit, i4 i3 i0 i7 i6. forward() goes from
// spatial to coefficient layout, backward() from coefficient to spatial; both compute the same transform.
//
// An encoder's first product multiplies 16-bit numbers exactly and adds in binary32. Numbers that need more bits are
// sums of two *terms*. All other products work in f16.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "cuda/chunk.cuh"
#include "cuda/values.cuh"

namespace actzip::cuda {

/// Eight numbers, each the sum of two terms. The second term is a bf16 number; so is the first, except for f16
/// elements, where it is an f16 number. Word k of each term holds numbers 2k and 2k + 1.
struct Terms {
  std::uint32_t w[2][4];

  Terms() = default;

  /// The nearest sums of two bf16 numbers: 8 bits of mantissa in each term.
  __device__ explicit Terms(const float (&values)[kChunk]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      w[0][k] = as_word(__floats2bfloat162_rn(values[2 * k], values[2 * k + 1]));
      w[1][k] = as_word(__floats2bfloat162_rn(values[2 * k] - math::float_of(w[0][k] << 16),
                                              values[2 * k + 1] - math::float_of(w[0][k] & 0xffff0000U)));
    }
  }
};

/// d += a * b, with factors of a 16-bit type and binary32 sums.
template <DType Type>
__device__ __forceinline__ void multiply_add(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                                             float* d) {
  if constexpr (Type == DType::f16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// A word four times, in four registers. The compiler cannot know that they are equal, so it does not copy them
/// together again for every product.
struct Quad {
  std::uint32_t w[4];

  __device__ Quad(std::uint32_t word, std::uint32_t last)
      : w{word + (blockDim.x - kThreads), word + (blockDim.y - 1), word + (blockDim.z - 1), opaque(last)} {}
};

/// One of the two matrix factors, in the register layout of a left operand of 16-bit numbers. Its first two words and
/// its last two words are also its halves as a right operand. Index bits in `kept` are not transformed. `one` is a pair
/// of ones, or of another power of two. The matrix is symmetric, and rows and columns 8 to 15 repeat 0 to 7, negated
/// where both are in the second half, so one pair of entries gives all that a lane holds.
__device__ __forceinline__ Quad hadamard_factor(int lane, int kept, std::uint32_t one) {
  constexpr std::uint32_t kNegative = 0x80008000U;
  const int row = lane / 4;
  const int column = lane % 4 * 2;
  const std::uint32_t sign = (static_cast<std::uint32_t>(__popc(row & column & ~kept)) & 1U) * kNegative;
  const std::uint32_t ones = one ^ sign ^ (static_cast<std::uint32_t>(row & 1) << 31);
  const std::uint32_t pair = ((row ^ column) & kept) != 0 ? 0U : ones;
  return {pair, pair ^ kNegative};
}

inline constexpr std::uint32_t kBf16Ones = 0x3f803f80U;
inline constexpr std::uint32_t kF16Ones = 0x3c003c00U;

/// For groups of 128, index bit 7 is not transformed; it is bit 2 of one of the factors.
__device__ __forceinline__ int kept_bits(int group) { return group == 128 ? 4 : 0; }

/// The transform in f16. Results come packed, so that nothing is converted between the products. Levels are exact in
/// f16, and no sum of 256 of them, transformed twice, reaches the limit of f16.
class HalfHadamard {
 public:
  __device__ HalfHadamard(int lane, int group)
      : full_(hadamard_factor(lane, 0, kF16Ones)),
        partial_(group == 256 ? full_ : hadamard_factor(lane, kept_bits(group), kF16Ones)) {}

  /// Transforms in place.
  __device__ void forward(std::uint32_t (&pairs)[4]) const {
    multiply_left(full_, pairs);
    multiply_right(pairs, partial_);
  }
  __device__ void backward(std::uint32_t (&pairs)[4]) const {
    multiply_left(partial_, pairs);
    multiply_right(pairs, full_);
  }
  /// The second product of forward().
  __device__ void finish_forward(std::uint32_t (&pairs)[4]) const { multiply_right(pairs, partial_); }

 private:
  __device__ static void multiply_left(const Quad& factor, std::uint32_t (&pairs)[4]) {
    std::uint32_t result[4];
    multiply(factor.w, pairs[0], pairs[1], result);
    multiply(factor.w, pairs[2], pairs[3], result + 2);
#pragma unroll
    for (int k = 0; k < 4; ++k) pairs[k] = result[k];
  }
  __device__ static void multiply_right(std::uint32_t (&pairs)[4], const Quad& factor) {
    std::uint32_t result[4];
    multiply(pairs, factor.w[0], factor.w[1], result);
    multiply(pairs, factor.w[2], factor.w[3], result + 2);
#pragma unroll
    for (int k = 0; k < 4; ++k) pairs[k] = result[k];
  }
  __device__ static void multiply(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, std::uint32_t* d) {
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %8};"
        : "=r"(d[0]), "=r"(d[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(0));
  }

  Quad full_;
  Quad partial_;
};

/// The transforms of an encoder, for f16 or for any other elements. The first product is exact and adds in binary32,
/// because the size of the elements is not known yet. The caller scales its results to a common size, after which f16
/// suffices.
template <DType Type>
class EncodingHadamard {
  static constexpr DType kFirst = Type == DType::f16 ? DType::f16 : DType::bf16;  ///< the type of first terms

 public:
  __device__ EncodingHadamard(int lane, int group)
      : first_(hadamard_factor(lane, 0, times(group / 4, kFirst))),
        second_(kFirst == DType::bf16 ? first_ : hadamard_factor(lane, 0, times(group / 4, DType::bf16))),
        rest_(lane, group),
        lane_(lane) {
    // Row r sums the columns of its own half; for groups of 256, all columns.
    const bool apart = group == 128 && lane / 16 != lane % 4 / 2;
    summing_ = apart ? 0U : group == 128 ? kOneOf32 : kOneOf64;
  }

  /// The first product, times group/4. The squares of its results add up to those of the coefficients after both
  /// transforms.
  __device__ void start(const Terms& in, float (&out)[kChunk]) const {
#pragma unroll
    for (float& x : out) x = 0.0F;
    multiply_add<kFirst>(first_.w, in.w[0][0], in.w[0][1], out);
    multiply_add<kFirst>(first_.w, in.w[0][2], in.w[0][3], out + 4);
    multiply_add<DType::bf16>(second_.w, in.w[1][0], in.w[1][1], out);
    multiply_add<DType::bf16>(second_.w, in.w[1][2], in.w[1][3], out + 4);
  }
  /// The rest of forward(), and backward(), in place.
  __device__ void finish_forward(std::uint32_t (&pairs)[4]) const { rest_.finish_forward(pairs); }
  __device__ void backward(std::uint32_t (&pairs)[4]) const { rest_.backward(pairs); }

  /// The sum of the elements of this lane's group in spatial layout, for 16-bit types. Row 0 of the first product
  /// contains the sums of the columns, times group/4. A second product, of these rounded to bf16, sums them for every
  /// row.
  [[nodiscard]] __device__ float sum(const Chunk<std::uint16_t>& chunk) const {
    float columns[4] = {};
    multiply_add<kFirst>(first_.w, chunk.w[0], chunk.w[1], columns);
    multiply_add<kFirst>(first_.w, chunk.w[2], chunk.w[3], columns);
    const std::uint32_t pairs = as_word(__floats2bfloat162_rn(columns[0], columns[1]));
    float result[4] = {};
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %4}, {%5}, {%0, %1, %2, %3};"
        : "+f"(result[0]), "+f"(result[1]), "+f"(result[2]), "+f"(result[3])
        : "r"(summing_), "r"(pairs));
    return __shfl_sync(~0U, result[0], lane_ & ~3);  // column 0, from the lane that holds row 0 of it
  }

 private:
  /// A pair of 64s or of 32s.
  [[nodiscard]] __device__ static std::uint32_t times(int number, DType type) {
    if (type == DType::f16) return number == 64 ? 0x54005400U : 0x50005000U;
    return number == 64 ? 0x42804280U : 0x42004200U;
  }
  static constexpr std::uint32_t kOneOf64 = 0x3c803c80U;
  static constexpr std::uint32_t kOneOf32 = 0x3d003d00U;

  Quad first_;
  Quad second_;
  HalfHadamard rest_;
  int lane_;
  std::uint32_t summing_;
};

}  // namespace actzip::cuda
