// The Hadamard transform of a group, which leaves its coefficients with bits 0 and 5 of their index exchanged. `rotated`
// does it twice, which puts them back.
//
// Every level takes the bits of the index in the same order, 1 to 7 and then 0, so that all round alike. Bits inside a
// vector are exchanged with a shuffle. Bit 0 comes last and pairs vectors that differ in bit 5: to bring even and odd
// elements to the same lanes exchanges bits 0 and 5, at no cost.
#pragma once

#include <cstdint>
#include <utility>

#include "cpu/loops/simd.hpp"

namespace actzip::cpu::ACTZIP_CPU_LEVEL {

namespace detail {

/// Calls body.operator()<i>() for i in [0, Count): a loop that is always unrolled, so that vectors stay in registers.
template <int Count, class Body>
inline void unrolled(Body body) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (body.template operator()<I>(), ...);
  }(std::make_integer_sequence<int, Count>{});
}

/// Sum in the lanes whose bit `Step` is 0, difference in the others.
template <int Step>
inline Floats lane_butterfly(Floats x) {
  const Floats sign = (iota() & std::uint32_t{Step}) == 0U ? broadcast(1.0F) : broadcast(-1.0F);
  return multiply_add(x, sign, exchange<Step>(x));
}

/// Bits 1 and up of the index inside a vector.
template <int Step = 2>
inline Floats inside(Floats x) {
  if constexpr (Step == kLanes) {
    return x;
  } else {
    return inside<2 * Step>(lane_butterfly<Step>(x));
  }
}

inline void butterfly(Floats& a, Floats& b) {
  const Floats sum = a + b;
  b = a - b;
  a = sum;
}

/// All bits of the number of a vector among `Count` of them, `Stride` apart.
template <int Count, int Stride, int Step = 1>
inline void between(Floats* v) {
  if constexpr (Step < Count) {
    unrolled<Count>([&]<int I>() {
      if constexpr ((I & Step) == 0) butterfly(v[I * Stride], v[(I + Step) * Stride]);
    });
    between<Count, Stride, 2 * Step>(v);
  }
}

}  // namespace detail

/// In place. `Group` elements, of which vector i holds [i*kLanes, (i+1)*kLanes). The second half of the work is done on
/// as many vectors at a time as there are registers for.
template <int Group>
__attribute__((always_inline)) inline void hadamard(Floats (&v)[Group / kLanes]) {
  constexpr int kVectors = Group / kLanes;
  constexpr int kTile = kLanes == 16 ? kVectors : 8;
  for (int first = 0; first < kVectors; first += kTile) {
    detail::unrolled<kTile>([&]<int I>() { v[first + I] = detail::inside(v[first + I]); });
    detail::between<kTile, 1>(v + first);
  }
  if constexpr (kVectors > kTile) {
    for (int first = 0; first < kTile; ++first) detail::between<kVectors / kTile, kTile>(v + first);
  }
  constexpr int kBit5 = 32 / kLanes;
  detail::unrolled<kVectors>([&]<int I>() {
    if constexpr ((I & kBit5) == 0) {
      const Floats even = transpose<0>(v[I], v[I + kBit5]);
      const Floats odd = transpose<1>(v[I], v[I + kBit5]);
      v[I] = even + odd;
      v[I + kBit5] = even - odd;
    }
  });
}

}  // namespace actzip::cpu::ACTZIP_CPU_LEVEL
