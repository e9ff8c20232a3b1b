#include "transforms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "resample.hpp"

namespace actzip::data {
namespace {

constexpr float kLeastArea = 0.08F;
constexpr float kWidest = 4.0F / 3.0F;  // and 1 / kWidest the highest
constexpr int kShapesTried = 10;
constexpr int kMostSize = 1 << 14;

bool padded(Crop crop) { return crop == Crop::zero_padded || crop == Crop::reflect_padded; }

int resized_side(const ImageTransform& transform) {
  return transform.resize > 0 ? transform.resize : transform.size * 8 / 7;
}

/// What a byte becomes: (byte - 255 mean) / (255 deviation), as float rounds it.
float normalised(float value, const ImageTransform& transform, std::size_t channel) {
  return (value - transform.mean[channel] * 255.0F) / (transform.deviation[channel] * 255.0F);
}

using Levels = std::array<std::array<float, 256>, 3>;

Levels levels_of(const ImageTransform& transform) {
  Levels levels;
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t value = 0; value < 256; ++value) {
      levels[c][value] = normalised(static_cast<float>(value), transform, c);
    }
  }
  return levels;
}

/// Where a pixel outside is mirrored to; `length` is above the padding.
int mirrored(int at, int length) {
  if (at < 0) return -at;
  return at < length ? at : 2 * (length - 1) - at;
}

/// The part of a row or column that a window sees: source positions, -1 for black.
std::vector<int> window(const ImageTransform& transform, int begin, bool backwards) {
  std::vector<int> positions(static_cast<std::size_t>(transform.size));
  for (int i = 0; i < transform.size; ++i) {
    const int at = begin + (backwards ? transform.size - 1 - i : i);
    const bool inside = at >= 0 && at < transform.size;
    positions[static_cast<std::size_t>(i)] =
        inside || transform.crop == Crop::reflect_padded ? mirrored(at, transform.size) : -1;
  }
  return positions;
}

/// Whole pixels, moved: nothing is scaled.
void copy_window(const ImageTransform& transform, const Image& image, Draws draws, std::span<float> out) {
  if (image.height != transform.size || image.width != transform.size) {
    throw DataError(fmt::format("an image of {} x {} (expected: {} x {}, or a crop that scales)", image.width,
                                image.height, transform.size, transform.size));
  }
  int top = 0;
  int left = 0;
  if (padded(transform.crop)) {
    const auto places = static_cast<std::uint32_t>(2 * transform.padding + 1);
    top = static_cast<int>(draws.below(places)) - transform.padding;
    left = static_cast<int>(draws.below(places)) - transform.padding;
  }
  const bool flip = transform.flip && draws.below(2) == 1;
  const std::vector<int> rows = window(transform, top, false);
  const std::vector<int> columns = window(transform, left, flip);

  const Levels levels = levels_of(transform);
  const auto size = static_cast<std::size_t>(transform.size);
  for (std::size_t y = 0; y < size; ++y) {
    const std::uint8_t* row = rows[y] < 0 ? nullptr : image.rgb.data() + static_cast<std::size_t>(rows[y]) * size * 3;
    for (std::size_t c = 0; c < 3; ++c) {
      float* target = out.data() + (c * size + y) * size;
      for (std::size_t x = 0; x < size; ++x) {
        const bool black = row == nullptr || columns[x] < 0;
        target[x] = levels[c][black ? 0 : row[3 * static_cast<std::size_t>(columns[x]) + c]];
      }
    }
  }
}

float draw_area(Draws& draws) { return draws.between(kLeastArea, 1.0F); }

/// A window of that share of the image. The area is drawn once, so that decode_hint() knows it before the image is
/// read; then shapes for it until one fits. If none does, as much of the middle as the widest or highest shape allows.
Window random_window(const Image& image, Draws& draws) {
  const auto height = static_cast<float>(image.height);
  const auto width = static_cast<float>(image.width);
  const float area = draw_area(draws) * height * width;
  for (int i = 0; i < kShapesTried; ++i) {
    const float ratio = std::exp(draws.between(-std::log(kWidest), std::log(kWidest)));
    const int w = static_cast<int>(std::lround(std::sqrt(area * ratio)));
    const int h = static_cast<int>(std::lround(std::sqrt(area / ratio)));
    if (w < 1 || h < 1 || w > image.width || h > image.height) continue;
    const auto top = static_cast<double>(draws.below(static_cast<std::uint32_t>(image.height - h + 1)));
    const auto left = static_cast<double>(draws.below(static_cast<std::uint32_t>(image.width - w + 1)));
    return {top, left, static_cast<double>(h), static_cast<double>(w)};
  }
  const double w = std::min(width, std::round(height * kWidest));
  const double h = std::min(height, std::round(width * kWidest));
  return {std::floor((height - h) / 2), std::floor((width - w) / 2), h, w};
}

/// The window in the middle of the image as it would be with its shorter side scaled; found in the image as it is.
Window centre_window(const ImageTransform& transform, const Image& image) {
  const int shorter = std::min(image.height, image.width);
  const int resize = resized_side(transform);
  const auto scaled = [&](int side) { return static_cast<int>(static_cast<std::int64_t>(side) * resize / shorter); };
  const auto begin = [&](int side) { return std::floor((scaled(side) - transform.size + 1) / 2.0); };
  const double rows = static_cast<double>(image.height) / scaled(image.height);
  const double columns = static_cast<double>(image.width) / scaled(image.width);
  return {begin(image.height) * rows, begin(image.width) * columns, transform.size * rows, transform.size * columns};
}

void scale_window(const ImageTransform& transform, const Image& image, Draws draws, std::span<float> out) {
  const Window part =
      transform.crop == Crop::random_resized ? random_window(image, draws) : centre_window(transform, image);
  const bool flip = transform.flip && draws.below(2) == 1;
  resample(image, part, transform.size, flip, out);
  const std::size_t plane = out.size() / 3;
  for (std::size_t c = 0; c < 3; ++c) {
    for (float& value : out.subspan(c * plane, plane)) value = normalised(value, transform, c);
  }
}

}  // namespace

void check(const ImageTransform& transform) {
  const auto fail_unless = [](bool fine, const std::string& text) {
    if (!fine) throw DataError(text);
  };
  fail_unless(transform.size >= 1 && transform.size <= kMostSize,
              fmt::format("image size {} (allowed: 1 to {})", transform.size, kMostSize));
  fail_unless(!padded(transform.crop) || (transform.padding >= 0 && transform.padding < transform.size),
              fmt::format("padding {} (allowed: 0 to {}, less than the size)", transform.padding, transform.size - 1));
  fail_unless(transform.crop != Crop::centre || transform.resize == 0 || transform.resize >= transform.size,
              fmt::format("shorter side {} for a crop of {} (allowed: no less than the crop)", transform.resize,
                          transform.size));
  for (const float deviation : transform.deviation) {
    fail_unless(deviation > 0.0F, fmt::format("deviation {} (allowed: above 0)", deviation));
  }
}

DecodeHint decode_hint(const ImageTransform& transform, Draws draws) {
  if (transform.crop == Crop::centre) return {resized_side(transform)};
  if (transform.crop != Crop::random_resized) return {};
  // The shorter side of a window of this area is no less than size if that of the image is no less than this.
  const float shorter = static_cast<float>(transform.size) / std::sqrt(draw_area(draws) / kWidest);
  return {static_cast<int>(std::ceil(shorter))};
}

void apply(const ImageTransform& transform, const Image& image, Draws draws, std::span<float> out) {
  const bool scales = transform.crop == Crop::random_resized || transform.crop == Crop::centre;
  scales ? scale_window(transform, image, draws, out) : copy_window(transform, image, draws, out);
}

ImageTransform cifar10_transform(Split split) {
  const bool train = split == Split::train;
  return {.crop = train ? Crop::zero_padded : Crop::none,
          .flip = train,
          .mean = {0.4914F, 0.4822F, 0.4465F},
          .deviation = {0.2470F, 0.2435F, 0.2616F}};
}

ImageTransform cifar100_transform(Split split) {
  const bool train = split == Split::train;
  return {.crop = train ? Crop::reflect_padded : Crop::none,
          .flip = train,
          .mean = {0.5071F, 0.4865F, 0.4409F},
          .deviation = {0.2673F, 0.2564F, 0.2762F}};
}

ImageTransform imagenet_transform(Split split, int size) {
  const bool train = split == Split::train;
  return {.crop = train ? Crop::random_resized : Crop::centre,
          .size = size,
          .flip = train,
          .mean = {0.485F, 0.456F, 0.406F},
          .deviation = {0.229F, 0.224F, 0.225F}};
}

}  // namespace actzip::data
