// Crops and scales images.
#pragma once

#include <span>

#include "images.hpp"
#include "pixel_normalization.hpp"

namespace actzip::data {

/// A crop window in pixels of the image; fractions are allowed.
struct Window {
  double top = 0.0;
  double left = 0.0;
  double height = 0.0;
  double width = 0.0;
};

/// Returns the region of an image of height x width that resample() reads for the window.
Region seen_by(const Window& window, int size, int height, int width);

/// Scales the window to size x size and writes [3, size, size] to `out`. Uses a triangle filter wide enough to avoid
/// aliasing: each pixel is a weighted mean of the source pixels that it covers. Where the window extends beyond the
/// image, only the pixels at the edge contribute. `flip` mirrors left and right. Throws DataError if the image does not
/// hold seen_by().
void resample(const Image& image, const Window& window, int size, bool flip, const PixelNormalization& normalization,
              std::span<float> out);

}  // namespace actzip::data
