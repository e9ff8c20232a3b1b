// index: format.md, section 8.
#include "cpu/loops/elements.hpp"
#include "cpu/loops/groups.hpp"
#include "cpu/loops/pack.hpp"

namespace actzip::cpu::ACTZIP_CPU_LEVEL {
namespace {

/// The type of a code before packing and after unpacking.
template <int Bits>
struct CodeOf {
  using Type = std::uint8_t;
};
template <>
struct CodeOf<16> {
  using Type = std::uint16_t;
};
template <>
struct CodeOf<32> {
  using Type = std::uint32_t;
};

/// Calls body.operator()<int>() for the widths that index_bits() returns.
template <class Body>
void with_index_bits(std::int64_t bound, Body body) {
  switch (index_bits(bound)) {
    case 1: return body.template operator()<1>();
    case 2: return body.template operator()<2>();
    case 4: return body.template operator()<4>();
    case 8: return body.template operator()<8>();
    case 16: return body.template operator()<16>();
    default: return body.template operator()<32>();
  }
}

/// Returns whether any value lies outside [0, bound); the code of such a value is 0.
template <class T, class Code>
bool to_codes(const T* x, int count, std::int64_t bound, Code* codes) {
  const auto limit = static_cast<std::uint64_t>(bound);
  std::uint64_t outside = 0;
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<std::uint64_t>(static_cast<std::int64_t>(x[i]));  // a negative one becomes huge
    const bool inside = value < limit;
    outside |= inside ? 0U : 1U;
    codes[i] = static_cast<Code>(inside ? value : 0U);
  }
  return outside != 0;
}

template <class T, int Bits>
void encode_blocks(const Index& spec, const codec::EncodeJob& job, Range blocks) {
  using Code = typename CodeOf<Bits>::Type;
  alignas(64) T values[kBlock] = {};
  alignas(64) Code codes[kBlock] = {};
  alignas(64) std::byte packed[kBlock * sizeof(Code)] = {};
  bool outside = false;
  Reader<T> reader(job.src, blocks.first * kBlock);
  for (std::int64_t b = blocks.first; b < blocks.last; ++b) {
    const std::int64_t left = job.geometry.elems - b * kBlock;
    const int count = static_cast<int>(left < kBlock ? left : kBlock);
    outside |= to_codes(reader.next(count, values), count, spec.bound, codes);
    for (int i = count; i < kBlock; ++i) codes[i] = 0;

    std::byte* const dst = job.dst + b * (kBlock / 8 * Bits);
    const auto bytes = static_cast<std::size_t>(word_bytes(count, Bits));
    if constexpr (Bits > 8) {
      __builtin_memcpy(dst, codes, bytes);
    } else {
      pack<Bits>(codes, kBlock, packed);
      __builtin_memcpy(dst, packed, bytes);
    }
  }
  if (outside) __atomic_fetch_or(reinterpret_cast<std::uint32_t*>(job.workspace), 1U, __ATOMIC_RELAXED);
}

template <class T, int Bits>
void decode_blocks(const codec::DecodeJob& job, Range blocks) {
  using Code = typename CodeOf<Bits>::Type;
  alignas(64) std::byte packed[kBlock * sizeof(Code)] = {};
  alignas(64) Code codes[kBlock] = {};
  alignas(64) T values[kBlock];
  Writer<T> writer(job.dst, blocks.first * kBlock);
  for (std::int64_t b = blocks.first; b < blocks.last; ++b) {
    const std::int64_t left = job.geometry.elems - b * kBlock;
    const int count = static_cast<int>(left < kBlock ? left : kBlock);
    const auto bytes = static_cast<std::size_t>(word_bytes(count, Bits));
    const std::byte* const src = job.src + b * (kBlock / 8 * Bits);
    if constexpr (Bits > 8) {
      __builtin_memcpy(codes, src, bytes);
    } else {
      __builtin_memcpy(packed, src, bytes);
      unpack<Bits>(packed, kBlock, codes);
    }
    for (int i = 0; i < count; ++i) values[i] = static_cast<T>(codes[i]);
    writer.write(values, count);
  }
}

}  // namespace

void encode(const Index& spec, const codec::EncodeJob& job, math::HashKey /*key*/, Range blocks) {
  with_index_bits(spec.bound, [&]<int Bits>() {
    switch (job.src.dtype) {
      case DType::i64: return encode_blocks<std::int64_t, Bits>(spec, job, blocks);
      case DType::i32: return encode_blocks<std::int32_t, Bits>(spec, job, blocks);
      case DType::i16: return encode_blocks<std::int16_t, Bits>(spec, job, blocks);
      default: return encode_blocks<std::uint8_t, Bits>(spec, job, blocks);
    }
  });
}

void decode(const Index& spec, const codec::DecodeJob& job, math::HashKey /*key*/, Range blocks) {
  with_index_bits(spec.bound, [&]<int Bits>() {
    if (job.dst.dtype == DType::i64) return decode_blocks<std::int64_t, Bits>(job, blocks);
    decode_blocks<std::int32_t, Bits>(job, blocks);
  });
}

}  // namespace actzip::cpu::ACTZIP_CPU_LEVEL
