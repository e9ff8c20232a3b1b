#include "resample.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

// Compiled once for AVX2 and once for any machine; nothing is fused (CMakeLists.txt), so both give the same numbers.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ACTZIP_CLONES [[gnu::target_clones("avx2", "default")]]
#else
#define ACTZIP_CLONES
#endif

namespace actzip::data {
namespace {

/// Along one side: the pixels that each pixel of the result is a mean of, as many for all.
struct Taps {
  std::size_t count = 0;
  std::vector<std::size_t> begin;
  std::vector<float> weights;  ///< [size, count]; the sum of each row is 1
};

Taps taps_of(double begin, double length, int size, int limit) {
  const double scale = length / size;
  const double reach = std::max(scale, 1.0);  // half the width of the triangle
  Taps taps;
  taps.count = static_cast<std::size_t>(std::min(limit, static_cast<int>(std::floor(2.0 * reach)) + 1));
  std::vector<double> row(taps.count);
  for (int i = 0; i < size; ++i) {
    const double centre = begin + (i + 0.5) * scale;
    const int wanted = static_cast<int>(std::floor(centre - reach + 0.5));
    const int first = std::clamp(wanted, 0, limit - static_cast<int>(taps.count));
    double sum = 0.0;
    for (std::size_t k = 0; k < taps.count; ++k) {
      row[k] = std::max(0.0, 1.0 - std::abs(first + static_cast<double>(k) + 0.5 - centre) / reach);
      sum += row[k];
    }
    if (sum == 0.0) {  // outside the image: the pixel nearest to it
      (wanted < first ? row.front() : row.back()) = 1.0;
      sum = 1.0;
    }
    taps.begin.push_back(static_cast<std::size_t>(first));
    for (const double weight : row) taps.weights.push_back(static_cast<float>(weight / sum));
  }
  return taps;
}

/// row = the mean of `count` rows that lie `stride` apart.
constexpr std::size_t kBlock = 32;
ACTZIP_CLONES void mix_rows(const std::uint8_t* source, std::size_t stride, const float* weights, std::size_t count,
                            float* row, std::size_t length) {
  std::size_t at = 0;
  for (; at + kBlock <= length; at += kBlock) {
    std::array<float, kBlock> sums;  // stay in registers
    for (std::size_t i = 0; i < kBlock; ++i) sums[i] = weights[0] * static_cast<float>(source[at + i]);
    for (std::size_t k = 1; k < count; ++k) {
      const std::uint8_t* part = source + k * stride + at;
      for (std::size_t i = 0; i < kBlock; ++i) sums[i] += weights[k] * static_cast<float>(part[i]);
    }
    std::memcpy(row + at, sums.data(), sizeof(sums));
  }
  for (; at < length; ++at) {
    row[at] = 0.0F;
    for (std::size_t k = 0; k < count; ++k) row[at] += weights[k] * static_cast<float>(source[k * stride + at]);
  }
}

/// Red, green and blue, and one that is not used: a vector of the machine.
using Pixel = float __attribute__((vector_size(16)));

Pixel load(const float* source) {
  Pixel pixel;
  std::memcpy(&pixel, source, sizeof(pixel));
  return pixel;
}

/// The weights of columns, with the gain in them, as the vectors that the loop multiplies by.
std::vector<Pixel> pixel_weights(const Taps& taps, const Levels& levels) {
  std::vector<Pixel> weights;
  for (const float weight : taps.weights) {
    weights.push_back(Pixel{weight * levels.gain[0], weight * levels.gain[1], weight * levels.gain[2], 0.0F});
  }
  return weights;
}

/// One row of the result out of a row of pixels that lie side by side.
template <std::size_t kCount>  // taps; 0: as many as there are
void mix_columns(const float* row, const Taps& taps, const Pixel* weights, Pixel offset, bool flip, float* target,
                 std::size_t plane) {
  const std::size_t count = kCount > 0 ? kCount : taps.count;
  const std::size_t size = taps.begin.size();
  for (std::size_t x = 0; x < size; ++x, weights += count) {
    const float* source = row + 3 * (taps.begin[x] - taps.begin[0]);
    Pixel sum = offset;
    for (std::size_t k = 0; k < count; ++k) sum += weights[k] * load(source + 3 * k);
    float* pixel = target + (flip ? size - 1 - x : x);
    pixel[0] = sum[0];
    pixel[plane] = sum[1];
    pixel[2 * plane] = sum[2];
  }
}

auto mix_columns_of(std::size_t count) {
  switch (count) {
    case 2: return &mix_columns<2>;
    case 3: return &mix_columns<3>;
    case 4: return &mix_columns<4>;
    case 5: return &mix_columns<5>;
    default: return &mix_columns<0>;
  }
}

}  // namespace

void resample(const Image& image, const Window& window, int size, bool flip, const Levels& levels,
              std::span<float> out) {
  const Taps rows = taps_of(window.top, window.height, size, image.height);
  const Taps columns = taps_of(window.left, window.width, size, image.width);
  const std::size_t first = columns.begin.front();
  const std::size_t seen = columns.begin.back() + columns.count - first;
  const std::size_t stride = 3 * static_cast<std::size_t>(image.width);

  std::vector<float> row(3 * seen + 1);  // a pixel reads one float more than it has
  const auto side = static_cast<std::size_t>(size);
  const auto mix = mix_columns_of(columns.count);
  const std::vector<Pixel> weights = pixel_weights(columns, levels);
  const Pixel offset = {levels.offset[0], levels.offset[1], levels.offset[2], 0.0F};
  for (std::size_t y = 0; y < side; ++y) {
    mix_rows(image.rgb.data() + rows.begin[y] * stride + 3 * first, stride, rows.weights.data() + y * rows.count,
             rows.count, row.data(), 3 * seen);
    mix(row.data(), columns, weights.data(), offset, flip, out.data() + y * side, side * side);
  }
}

}  // namespace actzip::data
