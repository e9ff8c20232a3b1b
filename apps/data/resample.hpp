// Part of an image in another size.
#pragma once

#include <span>

#include "images.hpp"
#include "levels.hpp"

namespace actzip::data {

/// In pixels of the image; need not be whole ones.
struct Window {
  double top = 0.0;
  double left = 0.0;
  double height = 0.0;
  double width = 0.0;
};

/// The pixels that resample() reads for the window, in an image of that size.
Region seen_by(const Window& window, int size, int height, int width);

/// Scales the window to size x size by a triangle filter that is wide enough to alias nothing, so each pixel is a mean
/// over those it stands for. Gives [3, size, size]. Where the window leaves the image, the pixels of the edge are all
/// there is. `flip` exchanges left and right. Throws DataError if seen_by() is not held by the image.
void resample(const Image& image, const Window& window, int size, bool flip, const Levels& levels,
              std::span<float> out);

}  // namespace actzip::data
