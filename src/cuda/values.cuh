// Chunks as numbers: widening, narrowing and extremes. These are fast versions of math::Element for the device; the
// conformance tests check that they agree with it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/chunk.cuh"
#include "math/element.hpp"
#include "math/float_bits.hpp"

namespace actzip::cuda {

template <DType Type>
using Storage = typename math::Element<Type>::Storage;

// CUDA's packed pairs are not trivially copyable, so bit_cast does not accept them. The compiler keeps the reference in
// a register.
template <class Packed>
[[nodiscard]] __device__ __forceinline__ Packed as_packed(std::uint32_t word) {
  return reinterpret_cast<const Packed&>(word);
}
template <class Packed>
[[nodiscard]] __device__ __forceinline__ std::uint32_t as_word(Packed packed) {
  return reinterpret_cast<const std::uint32_t&>(packed);
}

/// Returns `x` in a form whose value the compiler cannot know; blocks have kThreads threads in x. Operands that must be
/// in adjacent registers then stay there instead of being gathered for every product, and constants of instructions
/// that take only one immediate stay in registers.
[[nodiscard]] __device__ __forceinline__ std::uint32_t opaque(std::uint32_t x) { return x + (blockDim.x - kThreads); }

/// Negates each of a pair of 16-bit numbers where bit 15 or 31 of `signs` is 1, or in flip_others() 0. Both are one
/// instruction, written out because the compiler would first mask signs that are used twice.
[[nodiscard]] __device__ __forceinline__ std::uint32_t flip_pair(std::uint32_t pair, std::uint32_t signs) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, 0x80008000, 0x78;" : "=r"(result) : "r"(pair), "r"(signs));
  return result;
}
[[nodiscard]] __device__ __forceinline__ std::uint32_t flip_others(std::uint32_t pair, std::uint32_t signs) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, 0x80008000, 0xd2;" : "=r"(result) : "r"(pair), "r"(signs));
  return result;
}

/// Bits of `a` where `mask` is 1 and of `b` where it is 0, as one instruction.
[[nodiscard]] __device__ __forceinline__ std::uint32_t select_bits(std::uint32_t a, std::uint32_t b,
                                                                   std::uint32_t mask) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xe4;" : "=r"(result) : "r"(a), "r"(b), "r"(mask));
  return result;
}

/// (a | b) & mask, as one instruction.
[[nodiscard]] __device__ __forceinline__ std::uint32_t join_bits(std::uint32_t a, std::uint32_t b, std::uint32_t mask) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xa8;" : "=r"(result) : "r"(a), "r"(b), "r"(mask));
  return result;
}

/// Element `i` as binary32.
template <DType Type>
[[nodiscard]] __device__ __forceinline__ float widen(const Chunk<Storage<Type>>& chunk, int i) {
  if constexpr (Type == DType::f32) {
    return math::float_of(chunk.w[i]);
  } else if constexpr (Type == DType::bf16) {
    const std::uint32_t word = chunk.w[i / 2];
    return math::float_of(i % 2 == 0 ? word << 16 : word & 0xffff0000U);
  } else {
    const auto pair = as_packed<__half2>(chunk.w[i / 2]);
    return i % 2 == 0 ? __low2float(pair) : __high2float(pair);
  }
}

/// One element as binary32.
template <DType Type>
[[nodiscard]] __device__ __forceinline__ float widen_one(Storage<Type> element) {
  if constexpr (Type == DType::f16) return __half2float(__ushort_as_half(element));
  return math::Element<Type>::widen(element);
}

/// Two finite numbers as one word of 16-bit elements. f16 saturates, and would turn a NaN into a finite number.
template <DType Type>
[[nodiscard]] __device__ __forceinline__ std::uint32_t narrow_pair(float low, float high) {
  if constexpr (Type == DType::bf16) return as_word(__floats2bfloat162_rn(low, high));
  constexpr float kLargest = math::Element<DType::f16>::kLargest;
  return as_word(__floats2half2_rn(fminf(fmaxf(low, -kLargest), kLargest), fminf(fmaxf(high, -kLargest), kLargest)));
}

/// Finite numbers as words of elements; see narrow_pair().
template <DType Type, int Count, int Words>
__device__ __forceinline__ void narrow(const float (&values)[Count], std::uint32_t (&words)[Words]) {
  static_assert(Count * sizeof(Storage<Type>) == Words * 4);
#pragma unroll
  for (int k = 0; k < Words; ++k) {
    if constexpr (Type == DType::f32) {
      words[k] = math::bits_of(values[k]);
    } else {
      words[k] = narrow_pair<Type>(values[2 * k], values[2 * k + 1]);
    }
  }
}

/// Words of canonical NaNs.
template <DType Type, int Words>
__device__ __forceinline__ void fill_nan(std::uint32_t (&words)[Words]) {
  constexpr std::uint32_t kWord = Type == DType::f32    ? math::kNanF32
                                  : Type == DType::bf16 ? math::kNanBf16 * 0x10001U
                                                        : math::kNanF16 * 0x10001U;
#pragma unroll
  for (auto& word : words) word = kWord;
}

/// 1 / x with a relative error below 2^-22, if neither x nor the result is subnormal.
[[nodiscard]] __device__ __forceinline__ float fast_reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

[[nodiscard]] __device__ __forceinline__ float min_nan(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

/// The least value and the negated greatest one, so that one operation finds both; for 16-bit types they share a packed
/// word, which halves the shuffles. NaN if any value is NaN.
template <DType Type>
class Extremes {
  using Packed = std::conditional_t<Type == DType::bf16, __nv_bfloat162, __half2>;

 public:
  /// Extremes of no values: both are +infinity.
  __device__ Extremes() : pair_(as_packed<Packed>((Type == DType::bf16 ? 0x7f80U : 0x7c00U) * 0x10001U)) {}

  /// Includes the elements of a chunk.
  __device__ void take(const Chunk<std::uint16_t>& chunk) {
    Packed least = as_packed<Packed>(chunk.w[0]);
    Packed most = least;
#pragma unroll
    for (int k = 1; k < 4; ++k) {
      const auto word = as_packed<Packed>(chunk.w[k]);
      least = __hmin2_nan(least, word);
      most = __hmax2_nan(most, word);
    }
    const std::uint32_t negated = as_word(most) ^ 0x80008000U;
    // (least.low, -most.low) and (least.high, -most.high)
    const auto low = as_packed<Packed>(__byte_perm(as_word(least), negated, 0x5410));
    const auto high = as_packed<Packed>(__byte_perm(as_word(least), negated, 0x7632));
    pair_ = __hmin2_nan(pair_, __hmin2_nan(low, high));
  }

  /// Joins the extremes of `lanes` neighbouring lanes, a power of two.
  __device__ void reduce(int lanes) {
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      const std::uint32_t other = __shfl_xor_sync(~0U, as_word(pair_), distance);
      pair_ = __hmin2_nan(pair_, as_packed<Packed>(other));
    }
  }

  [[nodiscard]] __device__ float least() const { return widen<Type>(Chunk<std::uint16_t>{{as_word(pair_)}}, 0); }
  [[nodiscard]] __device__ float most() const { return -widen<Type>(Chunk<std::uint16_t>{{as_word(pair_)}}, 1); }

 private:
  Packed pair_;
};

template <>
class Extremes<DType::f32> {
 public:
  __device__ void take(const Chunk<float>& chunk) {
#pragma unroll
    for (std::uint32_t word : chunk.w) {
      least_ = min_nan(least_, math::float_of(word));
      negated_most_ = min_nan(negated_most_, -math::float_of(word));
    }
  }

  __device__ void reduce(int lanes) {
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      least_ = min_nan(least_, __shfl_xor_sync(~0U, least_, distance));
      negated_most_ = min_nan(negated_most_, __shfl_xor_sync(~0U, negated_most_, distance));
    }
  }

  [[nodiscard]] __device__ float least() const { return least_; }
  [[nodiscard]] __device__ float most() const { return -negated_most_; }

 private:
  float least_ = math::float_of(0x7f800000U);
  float negated_most_ = math::float_of(0x7f800000U);
};

/// The two statistics of a group, as stored.
struct Stats {
  float first;
  float second;
};

__device__ __forceinline__ void store_stats(std::byte* section, std::int64_t g, StatsType type, Stats stats) {
  if (type == StatsType::bf16) {
    reinterpret_cast<std::uint32_t*>(section)[g] =
        (math::bits_of(stats.first) >> 16) | (math::bits_of(stats.second) & 0xffff0000U);
  } else {
    reinterpret_cast<float2*>(section)[g] = make_float2(stats.first, stats.second);
  }
}

/// Two bf16 numbers that share a word.
[[nodiscard]] __device__ __forceinline__ Stats bf16_stats(std::uint32_t word) {
  return {math::float_of(word << 16), math::float_of(word & 0xffff0000U)};
}

[[nodiscard]] __device__ __forceinline__ Stats load_stats(const std::byte* section, std::int64_t g, StatsType type) {
  if (type == StatsType::bf16) return bf16_stats(reinterpret_cast<const std::uint32_t*>(section)[g]);
  const float2 pair = reinterpret_cast<const float2*>(section)[g];
  return {pair.x, pair.y};
}

/// The statistics of the groups of a full tile. Each lane reads those of one group, and shuffles give them to the
/// others.
class TileStats {
 public:
  __device__ TileStats(const std::byte* section, StatsType type, int group, std::int64_t tile, std::uint32_t lane) {
    shift_ = 31 - __clz(group);
    const std::uint32_t groups = kTile >> shift_;
    if (lane < groups) own_ = load_stats(section, tile * groups + lane, type);
  }

  /// Whether any group of the tile is unrepresentable. All lanes call it.
  [[nodiscard]] __device__ bool any_nan() const { return __any_sync(~0U, math::is_nan(own_.first)); }

  /// The statistics of the group that contains element `inside` of the tile. All lanes call it.
  [[nodiscard]] __device__ Stats of(std::uint32_t inside) const {
    const int source = static_cast<int>(inside >> shift_);
    return {__shfl_sync(~0U, own_.first, source), __shfl_sync(~0U, own_.second, source)};
  }

 private:
  int shift_ = 0;
  Stats own_ = {};
};

/// Rounds numbers to elements: those that are too large become infinite, and NaN stays NaN.
template <DType Type>
[[nodiscard]] __device__ __forceinline__ Chunk<Storage<Type>> rounded(const float (&values)[kChunk]) {
  Chunk<Storage<Type>> chunk;
  if constexpr (Type == DType::f16) {
#pragma unroll
    for (int k = 0; k < kChunk / 2; ++k) {
      chunk.w[k] = as_word(__floats2half2_rn(values[2 * k], values[2 * k + 1]));
    }
  } else {
    narrow<Type>(values, chunk.w);
  }
  return chunk;
}

/// Sets the elements whose bit of `mask` is 0 to 0.
template <DType Type>
__device__ __forceinline__ void keep_masked(Chunk<Storage<Type>>& chunk, std::uint32_t mask) {
  if constexpr (Type == DType::f32) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) chunk.w[i] &= 0U - ((mask >> i) & 1U);
  } else {
    const std::uint32_t apart = mask | mask << 15;  // puts the two bits of a pair 16 apart; the product widens them
#pragma unroll
    for (int k = 0; k < 4; ++k) chunk.w[k] &= ((apart >> 2 * k) & 0x00010001U) * 0xffffU;
  }
}

}  // namespace actzip::cuda
