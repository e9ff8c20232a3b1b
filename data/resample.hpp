// Part of an image in another size.
#pragma once

#include <array>
#include <span>

#include "images.hpp"

namespace actzip::data {

/// In pixels of the image; need not be whole ones.
struct Window {
  double top = 0.0;
  double left = 0.0;
  double height = 0.0;
  double width = 0.0;
};

/// What becomes of a value: value * gain + offset, channel by channel.
struct Levels {
  std::array<float, 3> gain = {1.0F, 1.0F, 1.0F};
  std::array<float, 3> offset = {0.0F, 0.0F, 0.0F};
};

/// Scales the window to size x size by a triangle filter that is wide enough to alias nothing, so each pixel is a mean
/// over those it stands for. Gives [3, size, size]. Where the window leaves the image, the pixels of the edge are all
/// there is. `flip` exchanges left and right.
void resample(const Image& image, const Window& window, int size, bool flip, const Levels& levels,
              std::span<float> out);

}  // namespace actzip::data
