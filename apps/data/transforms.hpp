// Prepares images for a network: crops, flips and normalises them to mean 0 and deviation 1.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "images.hpp"
#include "pixel_normalization.hpp"
#include "random.hpp"

namespace actzip::data {

enum class Crop : std::uint8_t {
  none,            ///< the image already has the output size
  zero_padded,     ///< pad with black, then crop a random window of the output size
  reflect_padded,  ///< likewise, but pad by mirroring at the edge without repeating the edge itself
  random_resized,  ///< crop a random window of 8 to 100 % of the area and 3:4 to 4:3, then scale it
  centre,          ///< scale the shorter side to `resize`, then crop the middle
};

/// The preparation of the images of one split.
struct ImageTransform {
  Crop crop = Crop::none;
  int size = 32;                                        ///< height and width of the output
  int padding = 4;                                      ///< on each side, for the padded crops
  int resize = 0;                                       ///< for `centre`; 0: size * 8 / 7, which is 256 for 224
  bool flip = false;                                    ///< mirror each image with probability 1/2
  std::array<float, 3> mean = {0.0F, 0.0F, 0.0F};       ///< of red, green and blue as values from 0 to 1
  std::array<float, 3> deviation = {1.0F, 1.0F, 1.0F};  ///< likewise
};

/// The transforms of the recipes. For training, they also crop and flip at random.
ImageTransform cifar10_transform(Split split);   ///< zero-padded by 4
ImageTransform cifar100_transform(Split split);  ///< reflect-padded by 4
ImageTransform imagenet_transform(Split split, int size = 224);

/// Applies a transform. May be used by several threads at once.
class ImagePipeline {
 public:
  /// Throws DataError for a field out of range.
  explicit ImagePipeline(const ImageTransform& transform);

  [[nodiscard]] const ImageTransform& transform() const { return transform_; }
  [[nodiscard]] std::size_t image_elems() const;  ///< 3 * size * size

  /// Returns the size at which the image must be decoded so that its crop loses no detail, and for a random crop the
  /// part that is needed. apply() with the same draws makes that crop. The pipeline must outlive the hint.
  [[nodiscard]] DecodeHint decode_hint(Draws draws) const;

  /// Fills `out`, which has image_elems() elements, channel by channel. Throws DataError if the image does not have the
  /// output size and the crop is Crop::none or a padded one.
  void apply(const Image& image, Draws draws, std::span<float> out) const;

 private:
  void copy_window(const Image& image, Draws draws, std::span<float> out) const;
  void scale_window(const Image& image, Draws draws, std::span<float> out) const;

  ImageTransform transform_;
  PixelNormalization normalization_;
};

}  // namespace actzip::data
