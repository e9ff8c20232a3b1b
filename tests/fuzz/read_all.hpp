// Reads all records of an image source as a loader does.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "data/images.hpp"

namespace actzip::fuzz {

/// Checks that each of the first 64 records is a valid image with a label below classes(), or damaged.
inline void read_all(const data::ImageSource& source) {
  constexpr std::size_t kMost = 64;
  if (source.size() < 1 || source.classes() < 1) std::abort();
  for (std::size_t i = 0; i < std::min(source.size(), kMost); ++i) {
    try {
      const data::Example example = source.read(i, {});
      const auto pixels =
          static_cast<std::size_t>(example.image.height) * static_cast<std::size_t>(example.image.width);
      if (example.label < 0 || example.label >= source.classes() || example.image.rgb.size() != 3 * pixels)
        std::abort();
    } catch (const data::DamagedRecord&) {
      continue;
    }
  }
}

}  // namespace actzip::fuzz
