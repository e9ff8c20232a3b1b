// Converts pixels from bytes to the normalised floats that a network sees.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// Compiles a function twice: for AVX2 and for any machine. Both give the same numbers, because CMakeLists.txt disables
// fused multiply-adds.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ACTZIP_CLONES [[gnu::target_clones("avx2", "default")]]
#else
#define ACTZIP_CLONES
#endif

namespace actzip::data {

/// The normalisation of each channel: value * gain + offset.
struct PixelNormalization {
  std::array<float, 3> gain = {1.0F, 1.0F, 1.0F};
  std::array<float, 3> offset = {0.0F, 0.0F, 0.0F};
};

/// Writes size x size pixels, given in rows `stride` bytes apart, as floats [3, size, size]; mirrored if `flip`. Reads
/// up to kReadPast bytes after the last pixel.
constexpr std::size_t kReadPast = 4;
void spread_pixels(const std::uint8_t* pixels, std::size_t stride, std::size_t size, bool flip,
                   const PixelNormalization& normalization, float* target);

}  // namespace actzip::data
