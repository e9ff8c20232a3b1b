// Sources of labelled images, read one at a time. docs/data.md describes the formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "error.hpp"

namespace actzip::data {

/// A rectangle of an image.
struct Region {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;
};

/// An image, or a part of one. Rows run from top to bottom, pixels from left to right, each as red, green and blue.
struct Image {
  int height = 0;  ///< of the whole image, like the width
  int width = 0;
  std::vector<std::uint8_t> rgb;    ///< the pixels of held() only
  std::optional<Region> part = {};  ///< the part that was decoded; unset: the whole image

  [[nodiscard]] Region held() const { return part.value_or(Region{0, 0, height, width}); }
};

struct Example {
  Image image;
  std::int64_t label = 0;
};

/// What the caller needs of an image. A source may return more.
struct DecodeHint {
  static constexpr int kFullSize = 0;
  /// The least length of the shorter side: a JPEG is decoded at 1/2, 1/4 or 1/8 of its size if it stays that large.
  int at_least = kFullSize;

  /// Returns the needed region, given the size of the image as decoded. Empty: the whole image is needed.
  std::function<Region(int height, int width)> part = {};
};

/// A data set of images. All member functions may be called from several threads at once.
class ImageSource {
 public:
  ImageSource() = default;
  ImageSource(const ImageSource&) = delete;
  ImageSource& operator=(const ImageSource&) = delete;
  virtual ~ImageSource() = default;

  [[nodiscard]] virtual std::size_t size() const = 0;
  [[nodiscard]] virtual std::int64_t classes() const = 0;  ///< 1 or more

  /// Reads a record; its label is below classes(). Throws DamagedRecord if the record cannot be used.
  [[nodiscard]] virtual Example read(std::size_t index, const DecodeHint& hint) const = 0;

  /// A name by which a user finds the record: "n01440764/n01440764_18.JPEG", "data_batch_1.bin, image 17".
  [[nodiscard]] virtual std::string name_of(std::size_t index) const = 0;

  /// A short description of the source: "folder of JPEGs", "LMDB of JPEGs".
  [[nodiscard]] virtual std::string kind() const = 0;
};

enum class Split : std::uint8_t { train, validation };

/// Opens the images that `where` names:
///   shapes[:COUNT]     generated images of 32 x 32, COUNT for training (10,000) and a fifth as many for validation
///   a folder           with the binary files of CIFAR-10 or CIFAR-100, with *-train.jpgs and *-test.jpgs, with
///                      data.mdb, with train.lmdb and val.lmdb, with train and val, or with a folder of JPEGs for
///                      each class
///   a file *.jpgs
/// Throws DataError with a message that lists these forms.
std::unique_ptr<ImageSource> open_images(const std::string& where, Split split);

}  // namespace actzip::data
