// From bytes to what a network sees.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// A function that is compiled once for AVX2 and once for any machine; nothing is fused (CMakeLists.txt), so both give
// the same numbers.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ACTZIP_CLONES [[gnu::target_clones("avx2", "default")]]
#else
#define ACTZIP_CLONES
#endif

namespace actzip::data {

/// What becomes of a value: value * gain + offset, channel by channel.
struct Levels {
  std::array<float, 3> gain = {1.0F, 1.0F, 1.0F};
  std::array<float, 3> offset = {0.0F, 0.0F, 0.0F};
};

/// size x size pixels, in rows that lie `stride` bytes apart, as [3, size, size]; from right to left if `flip`. Reads
/// kReadPast bytes after the last pixel.
constexpr std::size_t kReadPast = 4;
void spread_pixels(const std::uint8_t* pixels, std::size_t stride, std::size_t size, bool flip, const Levels& levels,
                   float* target);

}  // namespace actzip::data
