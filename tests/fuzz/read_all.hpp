// All records of an image source, as a loader reads them.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "data/images.hpp"

namespace actzip::fuzz {

/// Every record is an image with a label below the classes, or damaged.
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
