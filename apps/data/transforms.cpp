#include "transforms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "file.hpp"
#include "resample.hpp"

namespace actzip::data {
namespace {

constexpr float kLeastArea = 0.08F;
constexpr float kWidest = 4.0F / 3.0F;  // the tallest is 1 / kWidest
constexpr int kShapesTried = 10;
constexpr int kMostSize = 1 << 14;

bool padded(Crop crop) { return crop == Crop::zero_padded || crop == Crop::reflect_padded; }

int resized_side(const ImageTransform& transform) {
  return transform.resize > 0 ? transform.resize : transform.size * 8 / 7;
}

/// Returns the place that a place outside is mirrored to. Requires `length` to be greater than the padding.
int mirrored(int at, int length) {
  if (at < 0) return -at;
  return at < length ? at : 2 * (length - 1) - at;
}

/// Copies a row into the middle of `line`. Mirrors it to both sides if `reflect`; otherwise they stay black.
void pad_row(Bytes row, int padding, bool reflect, std::span<std::uint8_t> line) {
  const auto pad = static_cast<std::size_t>(padding);
  std::ranges::copy(row, line.begin() + 3 * padding);
  if (!reflect) return;
  for (std::size_t i = 1; i <= pad; ++i) {
    std::ranges::copy(row.subspan(3 * i, 3), line.begin() + static_cast<std::ptrdiff_t>(3 * (pad - i)));
    std::ranges::copy(row.last(3 * (i + 1)).first(3), line.end() - static_cast<std::ptrdiff_t>(3 * (pad + 1 - i)));
  }
}

float draw_area(Draws& draws) { return draws.between(kLeastArea, 1.0F); }

/// Draws a window. Draws its area first, and only once, so that decode_hint() knows it before the image is read; then
/// draws shapes for it until one fits. If none fits, uses as much of the middle as the widest or tallest shape allows.
Window random_window(int image_height, int image_width, Draws& draws) {
  const auto height = static_cast<float>(image_height);
  const auto width = static_cast<float>(image_width);
  const float area = draw_area(draws) * height * width;
  for (int i = 0; i < kShapesTried; ++i) {
    const float ratio = std::exp(draws.between(-std::log(kWidest), std::log(kWidest)));
    const int w = static_cast<int>(std::lround(std::sqrt(area * ratio)));
    const int h = static_cast<int>(std::lround(std::sqrt(area / ratio)));
    if (w < 1 || h < 1 || w > image_width || h > image_height) continue;
    const auto top = static_cast<double>(draws.below(static_cast<std::uint32_t>(image_height - h + 1)));
    const auto left = static_cast<double>(draws.below(static_cast<std::uint32_t>(image_width - w + 1)));
    return {top, left, static_cast<double>(h), static_cast<double>(w)};
  }
  const double w = std::min(width, std::round(height * kWidest));
  const double h = std::min(height, std::round(width * kWidest));
  return {std::floor((height - h) / 2), std::floor((width - w) / 2), h, w};
}

/// Returns the window, in pixels of the unscaled image, that is the middle of the image after scaling its shorter side.
Window centre_window(const ImageTransform& transform, const Image& image) {
  const int shorter = std::min(image.height, image.width);
  const int resize = resized_side(transform);
  const auto scaled = [&](int side) { return static_cast<int>(static_cast<std::int64_t>(side) * resize / shorter); };
  const auto begin = [&](int side) { return std::floor((scaled(side) - transform.size + 1) / 2.0); };
  const double rows = static_cast<double>(image.height) / scaled(image.height);
  const double columns = static_cast<double>(image.width) / scaled(image.width);
  return {begin(image.height) * rows, begin(image.width) * columns, transform.size * rows, transform.size * columns};
}

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
}  // namespace

ImagePipeline::ImagePipeline(const ImageTransform& transform) : transform_(transform) {
  check(transform_);
  for (std::size_t c = 0; c < 3; ++c) {
    normalization_.gain[c] = 1.0F / (255.0F * transform_.deviation[c]);
    normalization_.offset[c] = -transform_.mean[c] / transform_.deviation[c];
  }
}

std::size_t ImagePipeline::image_elems() const {
  const auto size = static_cast<std::size_t>(transform_.size);
  return 3 * size * size;
}

DecodeHint ImagePipeline::decode_hint(Draws draws) const {
  if (transform_.crop == Crop::centre) return {resized_side(transform_)};
  if (transform_.crop != Crop::random_resized) return {};
  Draws area_draws = draws;
  // If the image's shorter side is at least this long, the shorter side of any window of this area is at least `size`.
  const float shorter = static_cast<float>(transform_.size) / std::sqrt(draw_area(area_draws) / kWidest);
  return {static_cast<int>(std::ceil(shorter)), [this, draws](int height, int width) {
            Draws window_draws = draws;
            return seen_by(random_window(height, width, window_draws), transform_.size, height, width);
          }};
}

void ImagePipeline::apply(const Image& image, Draws draws, std::span<float> out) const {
  const bool scales = transform_.crop == Crop::random_resized || transform_.crop == Crop::centre;
  scales ? scale_window(image, draws, out) : copy_window(image, draws, out);
}

/// Crops without scaling. Copies each row of the window between its padding, then reads all rows from the column where
/// the window begins.
void ImagePipeline::copy_window(const Image& image, Draws draws, std::span<float> out) const {
  const int size = transform_.size;
  if (image.height != size || image.width != size) {
    throw DataError(fmt::format("an image of {} x {} (expected: {} x {}, or a crop that scales)", image.width,
                                image.height, size, size));
  }
  const int padding = padded(transform_.crop) ? transform_.padding : 0;
  const auto places = static_cast<std::uint32_t>(2 * padding + 1);
  const int top = padding > 0 ? static_cast<int>(draws.below(places)) - padding : 0;
  const std::uint32_t left = padding > 0 ? draws.below(places) : static_cast<std::uint32_t>(padding);
  const bool flip = transform_.flip && draws.below(2) == 1;
  const bool reflect = transform_.crop == Crop::reflect_padded;

  const auto side = static_cast<std::size_t>(size);
  const std::size_t stride = 3 * (side + 2 * static_cast<std::size_t>(padding));
  std::vector<std::uint8_t> rows(side * stride + kReadPast);  // initially black
  for (int y = 0; y < size; ++y) {
    const int source_y = reflect ? mirrored(top + y, size) : top + y;
    if (source_y < 0 || source_y >= size) continue;
    const std::uint8_t* row = image.rgb.data() + static_cast<std::size_t>(source_y) * side * 3;
    pad_row({row, 3 * side}, padding, reflect, std::span(rows).subspan(static_cast<std::size_t>(y) * stride, stride));
  }
  spread_pixels(rows.data() + std::size_t{3} * left, stride, side, flip, normalization_, out.data());
}

void ImagePipeline::scale_window(const Image& image, Draws draws, std::span<float> out) const {
  const Window part = transform_.crop == Crop::random_resized ? random_window(image.height, image.width, draws)
                                                              : centre_window(transform_, image);
  const bool flip = transform_.flip && draws.below(2) == 1;
  resample(image, part, transform_.size, flip, normalization_, out);
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
