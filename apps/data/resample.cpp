#include "resample.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

namespace actzip::data {
namespace {

/// A filter along one axis: one triangle for each pixel of the result.
struct Filter {
  Filter(double window_begin, double length, int size, int limit_)
      : begin(window_begin),
        scale(length / size),
        reach(std::max(scale, 1.0)),
        limit(limit_),
        count(std::min(limit, static_cast<int>(std::floor(2.0 * reach)) + 1)) {}

  [[nodiscard]] double centre(int i) const { return begin + (i + 0.5) * scale; }
  [[nodiscard]] int wanted(int i) const { return static_cast<int>(std::floor(centre(i) - reach + 0.5)); }
  /// Returns the first of `count` pixels.
  [[nodiscard]] int first(int i) const { return std::clamp(wanted(i), 0, limit - count); }

  double begin;
  double scale;
  double reach;  ///< half the width of the triangle
  int limit;     ///< pixels of the image along this axis
  int count;
};

/// The source pixels and weights of each pixel of the result, the same number for all.
struct Taps {
  std::size_t count = 0;
  std::vector<std::size_t> begin;
  std::vector<float> weights;  ///< [size, count]; each row adds up to 1
};

Taps taps_of(const Filter& filter, int size) {
  Taps taps;
  taps.count = static_cast<std::size_t>(filter.count);
  std::vector<double> row(taps.count);
  for (int i = 0; i < size; ++i) {
    const double centre = filter.centre(i);
    const int first = filter.first(i);
    double sum = 0.0;
    for (std::size_t k = 0; k < taps.count; ++k) {
      row[k] = std::max(0.0, 1.0 - std::abs(first + static_cast<double>(k) + 0.5 - centre) / filter.reach);
      sum += row[k];
    }
    if (sum == 0.0) {  // outside the image: use the nearest pixel
      (filter.wanted(i) < first ? row.front() : row.back()) = 1.0;
      sum = 1.0;
    }
    taps.begin.push_back(static_cast<std::size_t>(first));
    for (const double weight : row) taps.weights.push_back(static_cast<float>(weight / sum));
  }
  return taps;
}

/// Writes to `row` the weighted mean of `count` rows that are `stride` bytes apart.
constexpr std::size_t kBlock = 32;
ACTZIP_CLONES void mix_rows(const std::uint8_t* source, std::size_t stride, const float* weights, std::size_t count,
                            float* row, std::size_t length) {
  std::size_t at = 0;
  for (; at + kBlock <= length; at += kBlock) {
    std::array<float, kBlock> sums;  // kept in registers
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

/// Red, green, blue and an unused element: a vector register.
using Pixel = float __attribute__((vector_size(16)));

Pixel load(const float* source) {
  Pixel pixel;
  std::memcpy(&pixel, source, sizeof(pixel));
  return pixel;
}

/// Returns the weights of the columns, multiplied by the gain, as the vectors that the loop uses.
std::vector<Pixel> pixel_weights(const Taps& taps, const PixelNormalization& normalization) {
  std::vector<Pixel> weights;
  for (const float weight : taps.weights) {
    weights.push_back(
        Pixel{weight * normalization.gain[0], weight * normalization.gain[1], weight * normalization.gain[2], 0.0F});
  }
  return weights;
}

/// Makes one row of the result from a row of adjacent pixels.
template <std::size_t kCount>  // number of taps; 0: known only at run time
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

void check_held(const Region& held, const Region& seen) {
  const auto within = [](int begin, int length, int outer_begin, int outer_length) {
    return begin >= outer_begin && begin + length <= outer_begin + outer_length;
  };
  if (within(seen.top, seen.height, held.top, held.height) && within(seen.left, seen.width, held.left, held.width)) {
    return;
  }
  throw DataError(fmt::format("{} x {} pixels from column {} and row {} of an image (decoded: {} x {} from {} and {})",
                              seen.width, seen.height, seen.left, seen.top, held.width, held.height, held.left,
                              held.top));
}

}  // namespace

Region seen_by(const Window& window, int size, int height, int width) {
  const Filter rows(window.top, window.height, size, height);
  const Filter columns(window.left, window.width, size, width);
  const int top = rows.first(0);
  const int left = columns.first(0);
  return {top, left, rows.first(size - 1) + rows.count - top, columns.first(size - 1) + columns.count - left};
}

void resample(const Image& image, const Window& window, int size, bool flip, const PixelNormalization& normalization,
              std::span<float> out) {
  check_held(image.held(), seen_by(window, size, image.height, image.width));
  const Taps rows = taps_of({window.top, window.height, size, image.height}, size);
  const Taps columns = taps_of({window.left, window.width, size, image.width}, size);
  const std::size_t first = columns.begin.front();
  const std::size_t seen = columns.begin.back() + columns.count - first;
  const Region held = image.held();
  const auto top = static_cast<std::size_t>(held.top);
  const std::size_t left = first - static_cast<std::size_t>(held.left);
  const std::size_t stride = 3 * static_cast<std::size_t>(held.width);

  std::vector<float> row(3 * seen + 1);  // load() reads one float beyond a pixel
  const auto side = static_cast<std::size_t>(size);
  const auto mix = mix_columns_of(columns.count);
  const std::vector<Pixel> weights = pixel_weights(columns, normalization);
  const Pixel offset = {normalization.offset[0], normalization.offset[1], normalization.offset[2], 0.0F};
  for (std::size_t y = 0; y < side; ++y) {
    mix_rows(image.rgb.data() + (rows.begin[y] - top) * stride + 3 * left, stride, rows.weights.data() + y * rows.count,
             rows.count, row.data(), 3 * seen);
    mix(row.data(), columns, weights.data(), offset, flip, out.data() + y * side, side * side);
  }
}

}  // namespace actzip::data
