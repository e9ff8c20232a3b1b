// Vectors of binary32 and of 32-bit words, as wide as the registers of the level that is being built. Arithmetic,
// comparisons and `flags ? a : b` use the compiler's vector extension. Other operations are functions here, with
// intrinsics for the levels that have them and plain code for every other machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "actzip/types.hpp"
#include "math/element.hpp"
#include "math/float_bits.hpp"

#if defined(__AVX2__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12 warns of its own header, wrongly (its bug 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#endif

namespace actzip::cpu::ACTZIP_CPU_LEVEL {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

inline constexpr std::size_t kVectorBytes = 4 * kLanes;

using Floats = float __attribute__((vector_size(kVectorBytes)));
using Words = std::uint32_t __attribute__((vector_size(kVectorBytes)));
using Flags = std::int32_t __attribute__((vector_size(kVectorBytes)));  ///< of a comparison: all ones where it is true
using Quads = std::uint64_t __attribute__((vector_size(kVectorBytes)));
using Bytes = std::uint8_t __attribute__((vector_size(kLanes)));
using Halves = std::uint16_t __attribute__((vector_size(2 * kLanes)));

template <class Vector>
inline Vector load(const void* address) {
  Vector result;
  __builtin_memcpy(&result, address, sizeof result);
  return result;
}

template <class Vector>
inline void store(void* address, Vector value) {
  __builtin_memcpy(address, &value, sizeof value);
}

inline Words bits_of(Floats x) { return __builtin_bit_cast(Words, x); }
inline Floats floats_of(Words bits) { return __builtin_bit_cast(Floats, bits); }
inline Floats broadcast(float x) { return x - Floats{}; }
inline Words broadcast(std::uint32_t x) { return x - Words{}; }

namespace detail {
template <int... Lane>
inline Words numbers(std::integer_sequence<int, Lane...> /*lanes*/) {
  return Words{std::uint32_t{Lane}...};
}
template <int Step, int... Lane>
inline Floats shuffle(Floats x, std::integer_sequence<int, Lane...> /*lanes*/) {
  return __builtin_shufflevector(x, x, (Lane ^ Step)...);
}
using Lanes = std::make_integer_sequence<int, kLanes>;

/// Loads `Count` bytes as a number. If no integer type has that size, it combines two loads that overlap.
template <int Count>
inline std::uint64_t load_number(const std::byte* address) {
  if constexpr ((Count & (Count - 1)) == 0) {
    std::uint64_t result = 0;
    __builtin_memcpy(&result, address, Count);
    return result;
  } else {
    constexpr int kPart = Count < 4 ? 2 : 4;
    return load_number<kPart>(address) | load_number<kPart>(address + Count - kPart) << (8 * (Count - kPart));
  }
}
template <int Count>
inline Quads load_lanes(const std::byte* address) {
  Quads result = {};
  for (int i = 0; i < kLanes / 2; ++i) result[i] = load_number<Count>(address + i * Count);
  return result;
}
template <int Count>
inline void store_lanes(std::byte* address, Quads x) {
  for (int i = 0; i < kLanes / 2; ++i) {
    const std::uint64_t lane = x[i];
    __builtin_memcpy(address + i * Count, &lane, Count);
  }
}
}  // namespace detail

/// 0, 1, 2, ...
inline Words iota() { return detail::numbers(detail::Lanes{}); }

/// Lane i of the result is lane i ^ Step.
template <int Step>
inline Floats exchange(Floats x) {
  return detail::shuffle<Step>(x, detail::Lanes{});
}

/// All ones in the lanes whose bit is set in the lower kLanes bits of `bits`.
inline Flags flags_of(std::uint32_t bits) {
  const Words own = broadcast(1U) << iota();
  return (broadcast(bits) & own) == own;
}

#if defined(__AVX512F__)

/// a < b ? a : b, which is `b` if either is NaN; and the same with >.
inline Floats min(Floats a, Floats b) { return Floats(_mm512_min_ps(__m512(a), __m512(b))); }
inline Floats max(Floats a, Floats b) { return Floats(_mm512_max_ps(__m512(a), __m512(b))); }

/// a * b + c, where a * b is exact, so that it does not matter whether the product is rounded.
inline Floats multiply_add(Floats a, Floats b, Floats c) {
  return Floats(_mm512_fmadd_ps(__m512(a), __m512(b), __m512(c)));
}

/// a * b + c, rounded once.
inline Floats fused_multiply_add(Floats a, Floats b, Floats c) { return multiply_add(a, b, c); }

/// The even (Odd = 0) or odd (Odd = 1) lanes of `a` and `b` in turn: a0 b0 a2 b2 ..., or a1 b1 a3 b3 ...
template <int Odd>
inline Floats transpose(Floats a, Floats b) {
  if constexpr (Odd == 0) return Floats(_mm512_mask_moveldup_ps(__m512(a), 0xaaaa, __m512(b)));
  return Floats(_mm512_mask_movehdup_ps(__m512(b), 0x5555, __m512(a)));
}

/// Records whether any value was NaN.
class NanWatch {
 public:
  void see(Floats a, Floats b) {
    seen_ = static_cast<__mmask16>(seen_ | _mm512_cmp_ps_mask(__m512(a), __m512(b), _CMP_UNORD_Q));
  }
  [[nodiscard]] bool any() const { return seen_ != 0; }

 private:
  __mmask16 seen_ = 0;
};

/// One bit for each lane, the first lane in the lowest bit.
inline std::uint32_t bits_of(Flags flags) { return _mm512_movepi32_mask(__m512i(flags)); }

/// One bit for each of 32 bytes: 1 where the byte is not 0.
inline std::uint32_t nonzero_bits(const std::uint8_t* address) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(address));
  return _mm256_test_epi8_mask(bytes, bytes);
}

/// Negates the lanes whose bit is set.
inline Floats negate_where(std::uint32_t bits, Floats x) {
  const __m512 minus = _mm512_set1_ps(-0.0F);
  return Floats(_mm512_mask_xor_ps(__m512(x), static_cast<__mmask16>(bits), __m512(x), minus));
}

/// table[index], for indices below `Count`: 8, 16 or more.
template <int Count>
inline Floats lookup(const float (&table)[Count], Words index) {
  const auto from = [&](__m512 part) { return Floats(_mm512_permutexvar_ps(__m512i(index), part)); };
  if constexpr (Count == 8) return from(_mm512_broadcast_f32x8(_mm256_loadu_ps(table)));
  Floats found = from(_mm512_loadu_ps(table));
  for (int i = 16; i < Count; i += 16)
    found = index < static_cast<std::uint32_t>(i) ? found : from(_mm512_loadu_ps(table + i));
  return found;
}

/// Keeps the compiler from narrowing directly to memory, which is many times slower on some machines than two steps.
template <class Register>
inline Register in_register(Register x) {
  __asm__("" : "+v"(x));
  return x;
}

/// Load lanes from unsigned bytes or halves; to_halves() stores their lower bits.
inline Words load_bytes(const std::uint8_t* address) {
  return Words(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(address))));
}
inline Words load_halves(const std::uint16_t* address) {
  return Words(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(address))));
}
inline Halves to_halves(Words x) { return Halves(in_register(_mm512_cvtepi32_epi16(__m512i(x)))); }

inline Floats load_f16(const std::uint16_t* address) {
  return Floats(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(address))));
}
/// To nearest even; an overflow gives an infinity, a NaN some NaN.
inline Halves to_f16(Floats x) {
  return Halves(in_register(_mm512_cvtps_ph(__m512(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)));
}

/// Byte `Byte` of each lane of four vectors, in order.
template <int Byte>
inline Quads pick_bytes(Words a, Words b, Words c, Words d) {
  const __m512i from = _mm512_set1_epi32(0x0c080400) + _mm512_set1_epi8(Byte);
  __m512i picked = _mm512_maskz_shuffle_epi8(0x000f000f000f000f, __m512i(a), from);
  picked = _mm512_mask_shuffle_epi8(picked, 0x00f000f000f000f0, __m512i(b), from);
  picked = _mm512_mask_shuffle_epi8(picked, 0x0f000f000f000f00, __m512i(c), from);
  picked = _mm512_mask_shuffle_epi8(picked, 0xf000f000f000f000, __m512i(d), from);
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return Quads(_mm512_permutexvar_epi32(order, picked));
}

/// Largest width that join4() supports; 0 if this level has no such instruction.
inline constexpr int kMaxJoinBits = 6;

/// In each lane of 32 bits, four bytes b0 to b3 below 2^Bits: b0 + b1 * 2^Bits + b2 * 2^(2*Bits) + b3 * 2^(3*Bits).
template <int Bits>
inline Quads join4(Quads x) {
  static_assert(Bits <= kMaxJoinBits);
  const __m512i pairs = _mm512_maddubs_epi16(__m512i(x), _mm512_set1_epi16(1 + (256 << Bits)));
  return Quads(_mm512_madd_epi16(pairs, _mm512_set1_epi32(1 + (65536 << 2 * Bits))));
}

/// Load each 64-bit lane from `Count` consecutive bytes, and store the lowest `Count` bytes of each lane.
template <int Count>
inline Quads load_low_bytes(const std::byte* address) {
  if constexpr (Count == 1)
    return Quads(_mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(address))));
  if constexpr (Count == 2)
    return Quads(_mm512_cvtepu16_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(address))));
  if constexpr (Count == 4)
    return Quads(_mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(address))));
  return detail::load_lanes<Count>(address);
}
template <int Count>
inline void store_low_bytes(std::byte* address, Quads x) {
  if constexpr (Count == 1)
    return _mm_storel_epi64(reinterpret_cast<__m128i*>(address), in_register(_mm512_cvtepi64_epi8(__m512i(x))));
  if constexpr (Count == 2) return store(address, in_register(_mm512_cvtepi64_epi16(__m512i(x))));
  if constexpr (Count == 4) return store(address, in_register(_mm512_cvtepi64_epi32(__m512i(x))));
  detail::store_lanes<Count>(address, x);
}

/// Stores past the cache; the address is a multiple of the size.
inline void stream(void* address, Floats x) { _mm512_stream_ps(static_cast<float*>(address), __m512(x)); }
inline void stream(void* address, Halves x) { _mm256_stream_si256(static_cast<__m256i*>(address), __m256i(x)); }
inline void finish_streams() { _mm_sfence(); }

#elif defined(__AVX2__)

inline Floats min(Floats a, Floats b) { return Floats(_mm256_min_ps(__m256(a), __m256(b))); }
inline Floats max(Floats a, Floats b) { return Floats(_mm256_max_ps(__m256(a), __m256(b))); }

inline Floats multiply_add(Floats a, Floats b, Floats c) {
  return Floats(_mm256_fmadd_ps(__m256(a), __m256(b), __m256(c)));
}
inline Floats fused_multiply_add(Floats a, Floats b, Floats c) { return multiply_add(a, b, c); }

template <int Odd>
inline Floats transpose(Floats a, Floats b) {
  if constexpr (Odd == 0) return Floats(_mm256_blend_ps(__m256(a), _mm256_moveldup_ps(__m256(b)), 0xaa));
  return Floats(_mm256_blend_ps(__m256(b), _mm256_movehdup_ps(__m256(a)), 0x55));
}

class NanWatch {
 public:
  void see(Floats a, Floats b) { seen_ = _mm256_or_ps(seen_, _mm256_cmp_ps(__m256(a), __m256(b), _CMP_UNORD_Q)); }
  [[nodiscard]] bool any() const { return _mm256_movemask_ps(seen_) != 0; }

 private:
  __m256 seen_ = _mm256_setzero_ps();
};

inline std::uint32_t bits_of(Flags flags) { return static_cast<std::uint32_t>(_mm256_movemask_ps(__m256(flags))); }

inline std::uint32_t nonzero_bits(const std::uint8_t* address) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(address));
  return ~static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_setzero_si256())));
}

inline Floats negate_where(std::uint32_t bits, Floats x) {
  return floats_of(bits_of(x) ^ (Words(flags_of(bits)) & 0x80000000U));
}

template <int Count>
inline Floats lookup(const float (&table)[Count], Words index) {
  const auto from = [&](const float* part) {
    return Floats(_mm256_permutevar8x32_ps(_mm256_loadu_ps(part), __m256i(index)));
  };
  Floats found = from(table);
  for (int i = 8; i < Count; i += 8) found = index < static_cast<std::uint32_t>(i) ? found : from(table + i);
  return found;
}

inline Words load_bytes(const std::uint8_t* address) {
  return Words(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(address))));
}
inline Words load_halves(const std::uint16_t* address) {
  return Words(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(address))));
}
inline Halves to_halves(Words x) {
  const __m256i clean = __m256i(x & 0xffffU);  // packing saturates
  return Halves(_mm_packus_epi32(_mm256_castsi256_si128(clean), _mm256_extracti128_si256(clean, 1)));
}
template <int Byte>
inline Quads pick_bytes(Words a, Words b, Words c, Words d) {
  const __m256i from = _mm256_set1_epi32(0x0c080400) + _mm256_set1_epi8(Byte);
  const auto picked = [from](Words x) { return _mm256_shuffle_epi8(__m256i(x), from); };
  const __m256i ab = _mm256_blend_epi32(picked(a), picked(b), 0x22);
  const __m256i cd = _mm256_blend_epi32(picked(c), picked(d), 0x88);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return Quads(_mm256_permutevar8x32_epi32(_mm256_blend_epi32(ab, cd, 0xcc), order));
}

inline Floats load_f16(const std::uint16_t* address) {
  return Floats(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(address))));
}
inline Halves to_f16(Floats x) {
  return Halves(_mm256_cvtps_ph(__m256(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

inline constexpr int kMaxJoinBits = 6;

template <int Bits>
inline Quads join4(Quads x) {
  static_assert(Bits <= kMaxJoinBits);
  const __m256i pairs = _mm256_maddubs_epi16(__m256i(x), _mm256_set1_epi16(1 + (256 << Bits)));
  return Quads(_mm256_madd_epi16(pairs, _mm256_set1_epi32(1 + (65536 << 2 * Bits))));
}

template <int Count>
inline Quads load_low_bytes(const std::byte* address) {
  if constexpr (Count == 1) return Quads(_mm256_cvtepu8_epi64(_mm_loadu_si32(address)));
  if constexpr (Count == 2)
    return Quads(_mm256_cvtepu16_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(address))));
  if constexpr (Count == 4)
    return Quads(_mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(address))));
  return detail::load_lanes<Count>(address);
}
template <int Count>
inline void store_low_bytes(std::byte* address, Quads x) {
  detail::store_lanes<Count>(address, x);
}

inline void stream(void* address, Floats x) { _mm256_stream_ps(static_cast<float*>(address), __m256(x)); }
inline void stream(void* address, Halves x) { _mm_stream_si128(static_cast<__m128i*>(address), __m128i(x)); }
inline void finish_streams() { _mm_sfence(); }

#else

inline Floats min(Floats a, Floats b) { return a < b ? a : b; }
inline Floats max(Floats a, Floats b) { return a > b ? a : b; }

inline Floats multiply_add(Floats a, Floats b, Floats c) { return a * b + c; }
inline Floats fused_multiply_add(Floats a, Floats b, Floats c) {
  return Floats{__builtin_fmaf(a[0], b[0], c[0]), __builtin_fmaf(a[1], b[1], c[1]), __builtin_fmaf(a[2], b[2], c[2]),
                __builtin_fmaf(a[3], b[3], c[3])};
}

template <int Odd>
inline Floats transpose(Floats a, Floats b) {
  return __builtin_shufflevector(a, b, Odd, 4 + Odd, 2 + Odd, 6 + Odd);
}

class NanWatch {
 public:
  void see(Floats a, Floats b) { seen_ |= (a != a) | (b != b); }
  [[nodiscard]] bool any() const { return (seen_[0] | seen_[1] | seen_[2] | seen_[3]) != 0; }

 private:
  Flags seen_ = {};
};

inline std::uint32_t bits_of(Flags flags) {
  const Flags own = flags & Flags{1, 2, 4, 8};
  return static_cast<std::uint32_t>(own[0] | own[1] | own[2] | own[3]);
}

inline std::uint32_t nonzero_bits(const std::uint8_t* address) {
  std::uint32_t result = 0;
  for (int i = 0; i < 32; ++i) result |= static_cast<std::uint32_t>(address[i] != 0) << i;
  return result;
}

inline Floats negate_where(std::uint32_t bits, Floats x) {
  return floats_of(bits_of(x) ^ (Words(flags_of(bits)) & 0x80000000U));
}

template <int Count>
inline Floats lookup(const float (&table)[Count], Words index) {
  return Floats{table[index[0]], table[index[1]], table[index[2]], table[index[3]]};
}

inline Words load_bytes(const std::uint8_t* address) { return __builtin_convertvector(load<Bytes>(address), Words); }
inline Words load_halves(const std::uint16_t* address) { return __builtin_convertvector(load<Halves>(address), Words); }
template <int Byte>
inline Quads pick_bytes(Words a, Words b, Words c, Words d) {
  using Vector = std::uint8_t __attribute__((vector_size(kVectorBytes)));
  const auto pair = [](Words x, Words y) {
    return __builtin_shufflevector(Vector(x), Vector(y), Byte, Byte + 4, Byte + 8, Byte + 12, Byte + 16, Byte + 20,
                                   Byte + 24, Byte + 28);
  };
  return Quads{__builtin_bit_cast(std::uint64_t, pair(a, b)), __builtin_bit_cast(std::uint64_t, pair(c, d))};
}
inline Halves to_halves(Words x) { return __builtin_convertvector(x, Halves); }

inline Floats load_f16(const std::uint16_t* address) {
  return Floats{math::f16_to_f32(address[0]), math::f16_to_f32(address[1]), math::f16_to_f32(address[2]),
                math::f16_to_f32(address[3])};
}
inline Halves to_f16(Floats x) {
  return Halves{math::f32_to_f16(x[0]), math::f32_to_f16(x[1]), math::f32_to_f16(x[2]), math::f32_to_f16(x[3])};
}

inline constexpr int kMaxJoinBits = 0;
template <int Bits>
Quads join4(Quads x);

template <int Count>
inline Quads load_low_bytes(const std::byte* address) {
  return detail::load_lanes<Count>(address);
}
template <int Count>
inline void store_low_bytes(std::byte* address, Quads x) {
  detail::store_lanes<Count>(address, x);
}

template <class Vector>
inline void stream(void* address, Vector x) {
  store(address, x);
}
inline void finish_streams() {}

#endif

/// Joins the lanes of `x` by an operation on two vectors: halves with halves, until one lane is left.
template <int Step = kLanes / 2, class Join>
inline float reduce(Floats x, Join join) {
  if constexpr (Step == 0) {
    return x[0];
  } else {
    return reduce<Step / 2>(join(x, exchange<Step>(x)), join);
  }
}

}  // namespace actzip::cpu::ACTZIP_CPU_LEVEL
