// Packs codes, stored as bytes, into the form of format.md, section 3, and unpacks them. Every width takes the same
// three steps, which join neighbours in all lanes of a vector: bytes to pairs, these to fours, and these to eights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/loops/simd.hpp"
#include "format/geometry.hpp"

namespace actzip::cpu::ACTZIP_CPU_LEVEL {

/// Number of codes packed at a time: a whole number of words, except for odd widths at the lowest level.
inline constexpr int kPackStep = 4 * kLanes;
namespace detail {

/// `low` repeated in every lane of `lane_bits` bits.
constexpr std::uint64_t in_lanes(int lane_bits, std::uint64_t low) {
  std::uint64_t result = 0;
  for (int at = 0; at < 64; at += lane_bits) result |= low << at;
  return result;
}

constexpr std::uint64_t low_bits(int bits) { return bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1; }

/// Each lane of 2 * Half bits has two numbers of `Bits` bits, at bits 0 and Half. Moves the second one to bit `Bits`.
template <int Half, int Bits, class Quad>
inline Quad join(Quad x) {
  constexpr std::uint64_t kFirst = in_lanes(2 * Half, low_bits(Bits));
  return (x & kFirst) | ((x >> (Half - Bits)) & (kFirst << Bits));
}

/// The inverse.
template <int Half, int Bits, class Quad>
inline Quad part(Quad x) {
  constexpr std::uint64_t kFirst = in_lanes(2 * Half, low_bits(Bits));
  return (x & kFirst) | ((x << (Half - Bits)) & (kFirst << Half));
}

}  // namespace detail

/// Joins eight codes, one byte each, in the lowest 8 * Bits bits of 64.
template <int Bits>
inline Quads join8(Quads x) {
  if constexpr (Bits == 8) {
    return x;
  } else if constexpr (Bits <= kMaxJoinBits) {
    return detail::join<32, 4 * Bits>(join4<Bits>(x));
  } else {
    return detail::join<32, 4 * Bits>(detail::join<16, 2 * Bits>(detail::join<8, Bits>(x)));
  }
}

/// The inverse. Bits above the lowest 8 * Bits are dropped.
template <int Bits, class Quad>
inline Quad part8(Quad x) {
  if constexpr (Bits == 8) return x;
  return detail::part<8, Bits>(detail::part<16, 2 * Bits>(detail::part<32, 4 * Bits>(x)));
}

/// Packs kPackStep codes; byte `Byte` of each lane is one code.
template <int Bits, int Byte = 0>
__attribute__((always_inline)) inline void pack_lanes(const Words (&lanes)[4], std::byte* packed) {
  store_low_bytes<Bits>(packed, join8<Bits>(pick_bytes<Byte>(lanes[0], lanes[1], lanes[2], lanes[3])));
}

/// Packs `count` codes that are bytes; `count` is a multiple of kPackStep.
template <int Bits>
inline void pack(const std::uint8_t* codes, int count, std::byte* packed) {
  for (int i = 0; i < count; i += kPackStep) {
    store_low_bytes<Bits>(packed + i / 8 * Bits, join8<Bits>(load<Quads>(codes + i)));
  }
}

/// The inverse.
template <int Bits>
inline void unpack(const std::byte* packed, int count, std::uint8_t* codes) {
  for (int i = 0; i < count; i += kPackStep) {
    store(codes + i, part8<Bits>(load_low_bytes<Bits>(packed + i / 8 * Bits)));
  }
}

/// Size in bytes of `count` codes, in whole words.
constexpr std::int64_t word_bytes(std::int64_t count, int bits) { return format::ceil_div(count * bits, 32) * 4; }

/// Copies `count` packed codes and pads them with zeros to a whole word.
inline void copy_packed(std::byte* to, const std::byte* from, std::int64_t count, int bits) {
  const std::int64_t bytes = word_bytes(count, bits);
  __builtin_memcpy(to, from, static_cast<std::size_t>(bytes));
  const auto used = static_cast<int>(count * bits % 32);
  if (used != 0) {
    const std::uint32_t last = load<std::uint32_t>(to + bytes - 4) & ((1U << used) - 1U);
    store(to + bytes - 4, last);
  }
}

}  // namespace actzip::cpu::ACTZIP_CPU_LEVEL
