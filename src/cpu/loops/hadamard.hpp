// The Hadamard transform of a group. It leaves the coefficients with bits 0 and 5 of their index exchanged. `rotated`
// applies it twice, which puts them back.
//
// Every level processes the bits of the index in the same order, from bit 1 up and then bit 0, so that all levels round
// alike. Bits inside a vector use shuffles. Bit 0 comes last and pairs vectors that differ in bit 5. Bringing even and
// odd elements to the same lanes exchanges bits 0 and 5 at no cost.
#pragma once

#include <cstdint>
#include <utility>

#include "cpu/loops/simd.hpp"

namespace actzip::cpu::ACTZIP_CPU_LEVEL {

namespace detail {

/// Calls body.operator()<i>() for i in [0, Count): a loop that is always unrolled, so that vectors stay in registers.
template <int Count, class Body>
inline void unrolled(const Body& body) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (body.template operator()<I>(), ...);
  }(std::make_integer_sequence<int, Count>{});
}

/// The sum in lanes whose bit `Step` is 0, the difference in the others.
template <int Step>
inline Floats lane_butterfly(Floats x) {
  const Floats sign = (iota() & std::uint32_t{Step}) == 0U ? broadcast(1.0F) : broadcast(-1.0F);
  return multiply_add(x, sign, exchange<Step>(x));
}

/// The stages for those bits of the index, from bit 1 up, that lie inside a vector.
template <int Step = 2>
inline Floats inside(Floats x) {
  if constexpr (Step == kLanes) {
    return x;
  } else {
    return inside<2 * Step>(lane_butterfly<Step>(x));
  }
}

/// The stages for the bits of a vector's number among `Count` vectors.
template <int Count, int Step = 1>
inline void between(Floats (&v)[Count]) {
  if constexpr (Step < Count) {
    unrolled<Count / 2>([&]<int I>() {
      constexpr int kFirst = I % Step + I / Step * (2 * Step);
      const Floats difference = v[kFirst] - v[kFirst + Step];
      v[kFirst] += v[kFirst + Step];
      v[kFirst + Step] = difference;
    });
    between<Count, 2 * Step>(v);
  }
}

/// The stages for `Count` vectors that lie `Stride` apart, computed in registers.
template <int Count, int Stride, bool Inside>
inline void tile(Floats* v) {
  Floats registers[Count];
  unrolled<Count>([&]<int I>() { registers[I] = Inside ? inside(v[I * Stride]) : v[I * Stride]; });
  between(registers);
  unrolled<Count>([&]<int I>() { v[I * Stride] = registers[I]; });
}

}  // namespace detail

/// Transforms `Group` elements in place; vector i holds elements [i*kLanes, (i+1)*kLanes). To be inlined into a
/// function with the attribute `flatten`. If there are too few registers for all vectors, the bits between vectors are
/// processed in two steps.
template <int Group>
inline void hadamard(Floats (&v)[Group / kLanes]) {
  constexpr int kVectors = Group / kLanes;
  constexpr int kTile = kLanes == 16 ? kVectors : 8;
  if constexpr (kVectors == kTile) {
    detail::tile<kTile, 1, true>(v);
  } else {
    for (int first = 0; first < kVectors; first += kTile) detail::tile<kTile, 1, true>(v + first);
    for (int first = 0; first < kTile; ++first) detail::tile<kVectors / kTile, kTile, false>(v + first);
  }
  constexpr int kBit5 = 32 / kLanes;
  detail::unrolled<kVectors / 2>([&]<int I>() {
    constexpr int kFirst = I % kBit5 + I / kBit5 * (2 * kBit5);
    const Floats even = transpose<0>(v[kFirst], v[kFirst + kBit5]);
    const Floats odd = transpose<1>(v[kFirst], v[kFirst + kBit5]);
    v[kFirst] = even + odd;
    v[kFirst + kBit5] = even - odd;
  });
}

}  // namespace actzip::cpu::ACTZIP_CPU_LEVEL
