// Images with labels, one at a time, wherever they lie. docs/data.md has the formats.
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

/// Some rows and columns of an image.
struct Region {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;
};

/// Rows from top to bottom, pixels from left to right, red, green and blue of each.
struct Image {
  int height = 0;  ///< of the whole image, as is the width
  int width = 0;
  std::vector<std::uint8_t> rgb;    ///< of held() alone
  std::optional<Region> part = {};  ///< that was decoded; without it, all was

  [[nodiscard]] Region held() const { return part.value_or(Region{0, 0, height, width}); }
};

struct Example {
  Image image;
  std::int64_t label = 0;
};

/// What is wanted of an image. A source may give more.
struct DecodeHint {
  static constexpr int kFullSize = 0;
  int at_least = kFullSize;  ///< its shorter side: a JPEG is decoded at 1/2, 1/4 or 1/8 where that is no smaller

  /// The region that is wanted of an image of the size that it is decoded to; nothing: all of it.
  std::function<Region(int height, int width)> part = {};
};

/// A data set. All of it may be called from several threads at once.
class ImageSource {
 public:
  ImageSource() = default;
  ImageSource(const ImageSource&) = delete;
  ImageSource& operator=(const ImageSource&) = delete;
  virtual ~ImageSource() = default;

  [[nodiscard]] virtual std::size_t size() const = 0;
  [[nodiscard]] virtual std::int64_t classes() const = 0;  ///< 1 or more

  /// Throws DamagedRecord if this record cannot be used; its label is below classes() otherwise.
  [[nodiscard]] virtual Example read(std::size_t index, const DecodeHint& hint) const = 0;

  /// What a user finds the record by: "train/n01440764/n01440764_18.JPEG", "data_batch_1.bin, image 17".
  [[nodiscard]] virtual std::string name_of(std::size_t index) const = 0;

  /// One line on what this is: "folder of JPEGs", "LMDB".
  [[nodiscard]] virtual std::string kind() const = 0;
};

enum class Split : std::uint8_t { train, validation };

/// Opens what `where` is:
///   shapes[:COUNT]     generated images, 32 x 32, COUNT to train with (10,000) and a fifth of it to validate
///   a folder           with CIFAR-10's or CIFAR-100's binary files, with *-train.jpgs and *-test.jpgs, with data.mdb,
///                      with train.lmdb and val.lmdb, with train and val, or with a folder of JPEGs for each class
///   a file *.jpgs
/// Throws DataError that says which of these were looked for.
std::unique_ptr<ImageSource> open_images(const std::string& where, Split split);

}  // namespace actzip::data
