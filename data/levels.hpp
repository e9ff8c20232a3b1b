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

/// Pixels that lie side by side, as three rows that lie `plane` apart, from right to left if `flip`. Reads
/// kReadPast bytes more than it uses.
constexpr std::size_t kReadPast = 4;
void spread_row(const std::uint8_t* pixels, std::size_t count, bool flip, const Levels& levels, float* target,
                std::size_t plane);

}  // namespace actzip::data
