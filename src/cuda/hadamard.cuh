// The Hadamard transform of 256 coefficients (or twice 128) over one warp, eight a lane.
//
// Write an index as bits i7..i0. Between memory and transform the eight elements of a lane are i2 i1 i0 and the lane is
// i7..i3 (*spatial* layout). After the transform the eight coefficients of a lane are i2 i1 i5 (*coefficient* layout):
// that is how tensor cores leave them, and the reason why format.md stores coefficient j with bits 0 and 5 exchanged.
// Eight stored codes are a *slot*; which one a lane holds, and which bit of the lane is i7, depends on the transform.
//
// 16-bit input: H256 is H16 times H16, two products of 16 x 16 matrices with the data as the right and then as the left
// operand; the result of the first has the register layout that the second asks for, so no data crosses lanes.
// binary32: butterflies, with shuffles across lanes.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "cuda/chunk.cuh"

namespace actzip::cuda {

/// The factor H16 in the register layouts of the tensor cores' operands, which for a symmetric matrix of +-1 come down to
/// one pair of entries and its negative. For groups of 128 index bit 7 is not transformed: it is bit 2 of the second
/// factor when encoding, of the first when decoding.
class HadamardFactors {
 public:
  enum class Direction { encode, decode };

  /// From the highest bit, the lane is i4 i3 i0 i7 i6 in coefficient layout.
  static constexpr int kTopBit = 1;
  __device__ static int slot(int lane) { return ((lane >> 3) & 3) | (lane & 4) | ((lane & 3) << 3); }

  __device__ HadamardFactors(int lane, int group, Direction direction) {
    const std::uint32_t full = entries(lane / 4, lane % 4 * 2, 0);
    const std::uint32_t split = group == 128 ? entries(lane / 4, lane % 4 * 2, 4) : full;
    left_ = direction == Direction::encode ? full : split;
    right_ = direction == Direction::encode ? split : full;
  }

  /// `words`: eight bf16 numbers. One layout in, the other out.
  __device__ void transform(const std::uint32_t (&words)[4], float (&out)[kChunk]) const {
    float first[kChunk];
    const std::uint32_t left[4] = {left_, left_, left_, left_ ^ kNegative};
    multiply(left, words[0], words[1], first);
    multiply(left, words[2], words[3], first + 4);
    std::uint32_t middle[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const __nv_bfloat162 packed = __floats2bfloat162_rn(first[2 * k], first[2 * k + 1]);
      middle[k] = reinterpret_cast<const std::uint32_t&>(packed);
    }
    multiply(middle, right_, right_, out);
    multiply(middle, right_, right_ ^ kNegative, out + 4);
  }

 private:
  static constexpr std::uint32_t kNegative = 0x80008000U;

  /// Entries (row, column) and (row, column + 1), for an even column, in bf16; bits in `kept` are those of a unit matrix.
  /// Rows and columns 8 to 15 repeat them, negated where both are.
  __device__ static std::uint32_t entries(int row, int column, int kept) {
    if (((row ^ column) & kept) != 0) return 0U;
    const std::uint32_t sign = (static_cast<std::uint32_t>(__popc(row & column & ~kept)) & 1U) * kNegative;
    return 0x3f803f80U ^ sign ^ (static_cast<std::uint32_t>(row & 1) << 31);
  }

  __device__ static void multiply(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, float* d) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %10, %10, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0F));
  }

  std::uint32_t left_;
  std::uint32_t right_;
};

/// The same transform in binary32, in place.
class HadamardButterflies {
 public:
  /// From the highest bit, the lane is i7 i6 i0 i4 i3 in coefficient layout.
  static constexpr int kTopBit = 4;
  __device__ static int slot(int lane) { return lane; }

  __device__ HadamardButterflies(int lane, int group) : lane_(lane), most_distance_(group / kChunk / 2) {}

  __device__ void encode(float (&v)[kChunk]) const {
    all_stages(v);
    exchange(v);
  }

  __device__ void decode(float (&v)[kChunk]) const {
    exchange(v);
    all_stages(v);
  }

 private:
  /// Index bits 0 and 5, bit 0 of the element and bit 2 of the lane, change places.
  __device__ void exchange(float (&v)[kChunk]) const {
    const bool upper = (lane_ & 4) != 0;
#pragma unroll
    for (int i = 0; i < kChunk; i += 2) {
      const float received = __shfl_xor_sync(~0U, upper ? v[i] : v[i + 1], 4);
      v[i] = upper ? received : v[i];
      v[i + 1] = upper ? v[i + 1] : received;
    }
  }

  __device__ void all_stages(float (&v)[kChunk]) const {
#pragma unroll
    for (int stride = 1; stride < kChunk; stride *= 2) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        if ((i & stride) != 0) continue;
        const float a = v[i];
        const float b = v[i + stride];
        v[i] = a + b;
        v[i + stride] = a - b;
      }
    }
    for (int distance = 1; distance <= most_distance_; distance *= 2) {
      const float sign = (lane_ & distance) != 0 ? -1.0F : 1.0F;
#pragma unroll
      for (float& x : v) x = fmaf(x, sign, __shfl_xor_sync(~0U, x, distance));
    }
  }

  int lane_;
  int most_distance_;
};

}  // namespace actzip::cuda
