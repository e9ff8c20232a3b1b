#include "resample.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace actzip::data {
namespace {

/// The pixels that one pixel of the result is a mean of.
struct Taps {
  std::size_t begin = 0;
  std::vector<float> weights;  ///< their sum is 1
};

std::vector<Taps> taps_of(double begin, double length, int size, int limit) {
  const double scale = length / size;
  const double reach = std::max(scale, 1.0);  // half the width of the triangle
  std::vector<Taps> all(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) {
    const double centre = begin + (i + 0.5) * scale;
    const int first = std::clamp(static_cast<int>(std::floor(centre - reach + 0.5)), 0, limit - 1);
    const int last = std::clamp(static_cast<int>(std::floor(centre + reach + 0.5)), first + 1, limit);
    Taps& taps = all[static_cast<std::size_t>(i)];
    taps.begin = static_cast<std::size_t>(first);
    double sum = 0.0;
    std::vector<double> weights;
    for (int at = first; at < last; ++at) {
      weights.push_back(std::max(0.0, 1.0 - std::abs(at + 0.5 - centre) / reach));
      sum += weights.back();
    }
    if (sum == 0.0) {  // outside the image: the pixel nearest to it
      weights.assign(1, 1.0);
      sum = 1.0;
    }
    for (const double weight : weights) taps.weights.push_back(static_cast<float>(weight / sum));
  }
  return all;
}

/// The columns from `first` on of a mean of rows, as floats.
void mix_rows(const Image& image, const Taps& taps, std::size_t first, std::span<float> row) {
  const std::size_t stride = 3 * static_cast<std::size_t>(image.width);
  std::ranges::fill(row, 0.0F);
  for (std::size_t k = 0; k < taps.weights.size(); ++k) {
    const std::uint8_t* source = image.rgb.data() + (taps.begin + k) * stride + 3 * first;
    const float weight = taps.weights[k];
    for (std::size_t i = 0; i < row.size(); ++i) row[i] += weight * static_cast<float>(source[i]);
  }
}

}  // namespace

void resample(const Image& image, const Window& window, int size, bool flip, std::span<float> out) {
  const std::vector<Taps> rows = taps_of(window.top, window.height, size, image.height);
  const std::vector<Taps> columns = taps_of(window.left, window.width, size, image.width);
  const std::size_t first = columns.front().begin;
  const std::size_t seen = columns.back().begin + columns.back().weights.size() - first;

  constexpr std::size_t kLanes = 4;  // red, green, blue and one that is not used: a vector
  std::vector<float> row(3 * seen + 1);
  const auto side = static_cast<std::size_t>(size);
  for (std::size_t y = 0; y < side; ++y) {
    mix_rows(image, rows[y], first, std::span(row).first(3 * seen));
    for (std::size_t x = 0; x < side; ++x) {
      const Taps& taps = columns[x];
      const float* source = row.data() + 3 * (taps.begin - first);
      std::array<float, kLanes> sum = {};
      for (std::size_t k = 0; k < taps.weights.size(); ++k) {
        for (std::size_t c = 0; c < kLanes; ++c) sum[c] += taps.weights[k] * source[3 * k + c];
      }
      const std::size_t target = y * side + (flip ? side - 1 - x : x);
      for (std::size_t c = 0; c < 3; ++c) out[c * side * side + target] = sum[c];
    }
  }
}

}  // namespace actzip::data
