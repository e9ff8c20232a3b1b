// What encoding and decoding of `dual` share on the host: choosing kernels by layout and width.
#pragma once

#include <cstdint>
#include <string>

#include "actzip/error.hpp"
#include "cuda/launch.cuh"
#include "dispatch.hpp"
#include "format/dual.hpp"

namespace actzip::cuda {

/// Calls body.operator()<Run>() with the greatest power of two, up to `Most`, such that every run of that many elements
/// lies in one block.
template <int Most, class Body>
auto with_run(const format::DualLayout& layout, Body&& body) {
  if constexpr (Most > 1) {
    if (layout.width % Most != 0 || Most > 1 << layout.shift) return with_run<Most / 2>(layout, body);
  }
  return body.template operator()<Most>();
}

/// Calls body.operator()<Bits>() with the width if it is 2, the most common one, otherwise with kRunTimeBits: kernels
/// that contain the code for all widths are so long that they wait for their instructions.
template <class Body>
auto with_width_of(const Dual& spec, Body&& body) {
  if (spec.bits.value == 2) return body.template operator()<2>();
  return body.template operator()<kRunTimeBits>();
}

/// Checks that places in a map can be computed in 32 bits. Throws Error(invalid_view).
inline void check_maps(const format::DualLayout& layout) {
  constexpr std::int64_t kMost = 0x7fffffff - 2 * kTile;
  if (layout.positions <= kMost) return;
  throw Error(ErrorCode::invalid_view, "cuda: dual: maps of " + std::to_string(layout.positions) +
                                           " positions (allowed: up to " + std::to_string(kMost) + ")");
}

}  // namespace actzip::cuda
