// What the codecs with uniform levels share: noise, and the arithmetic of math/affine.hpp on vectors.
#pragma once

#include <cstdint>

#include "cpu/loops/simd.hpp"
#include "math/affine.hpp"
#include "math/hash.hpp"

namespace actzip::cpu::ACTZIP_CPU_LEVEL {

/// Writes the noise bytes of elements [first, first + count), which are the bytes of the random words in memory.
/// `count` is a power of two, and `first` a multiple of it.
inline void fill_noise(math::HashKey key, std::int64_t first, int count, std::uint8_t* noise) {
  const std::int64_t counter = first / 4;
  const math::HashKey upper = key.for_upper(static_cast<std::uint32_t>(counter >> 32));
  const std::uint32_t start = math::hash_start(upper, static_cast<std::uint32_t>(counter));
  for (int i = 0; i < count; i += 4 * kLanes) {
    store(noise + i, math::hash_finish<Words>(upper, (start ^ static_cast<std::uint32_t>(i / 4)) ^ iota()));
  }
}

struct VectorOperations {
  static Floats max(Floats a, float b) { return ACTZIP_CPU_LEVEL::max(a, broadcast(b)); }
  static Floats fused(Floats a, float b, float c) { return fused_multiply_add(a, broadcast(b), broadcast(c)); }
  static Floats fused(Floats a, Floats b, float c) { return fused_multiply_add(a, b, broadcast(c)); }
};

}  // namespace actzip::cpu::ACTZIP_CPU_LEVEL
