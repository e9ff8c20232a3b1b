// What happens to an image before a network sees it: a crop, a flip, numbers with mean 0 and deviation 1.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "images.hpp"
#include "levels.hpp"
#include "random.hpp"

namespace actzip::data {

enum class Crop : std::uint8_t {
  none,            ///< the image has the size already
  zero_padded,     ///< black pixels around it, then a window of the size at random
  reflect_padded,  ///< the same with what is inside mirrored at the edge, without the edge itself
  random_resized,  ///< a window of 8 to 100 % of the area and 3:4 to 4:3, scaled to the size
  centre,          ///< the shorter side scaled to `resize`, then the window in the middle
};

/// A value: the recipe of one split.
struct ImageTransform {
  Crop crop = Crop::none;
  int size = 32;                                        ///< height and width of what comes out
  int padding = 4;                                      ///< for the padded crops, on each side
  int resize = 0;                                       ///< for `centre`; 0: size * 8 / 7, which is 256 for 224
  bool flip = false;                                    ///< left and right exchanged, for every second image
  std::array<float, 3> mean = {0.0F, 0.0F, 0.0F};       ///< of red, green and blue, for values from 0 to 1
  std::array<float, 3> deviation = {1.0F, 1.0F, 1.0F};  ///< the same
};

/// The recipes' transforms; `train` also crops and flips at random.
ImageTransform cifar10_transform(Split split);   ///< zero-padded by 4
ImageTransform cifar100_transform(Split split);  ///< reflect-padded by 4
ImageTransform imagenet_transform(Split split, int size = 224);

/// A transform, checked and ready. May be used by several threads at once.
class ImagePipeline {
 public:
  /// Throws DataError for a field out of its range.
  explicit ImagePipeline(const ImageTransform& transform);

  [[nodiscard]] const ImageTransform& transform() const { return transform_; }
  [[nodiscard]] std::size_t image_elems() const;  ///< 3 * size * size

  /// How large the image must be decoded so that nothing of its crop is lost, and which part of it if it is cropped at
  /// random; apply() with the same draws makes that crop. To be used while the pipeline is there.
  [[nodiscard]] DecodeHint decode_hint(Draws draws) const;

  /// Fills `out`, image_elems() of it, channel by channel. Throws DataError if Crop::none or a padded one meets an
  /// image of another size.
  void apply(const Image& image, Draws draws, std::span<float> out) const;

 private:
  void copy_window(const Image& image, Draws draws, std::span<float> out) const;
  void scale_window(const Image& image, Draws draws, std::span<float> out) const;

  ImageTransform transform_;
  Levels levels_;
};

}  // namespace actzip::data
