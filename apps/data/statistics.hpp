// A look at all images of a source.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "images.hpp"

namespace actzip::data {

struct ImageStatistics {
  std::size_t images = 0;            ///< that can be used
  std::vector<std::string> damaged;  ///< the others, in order, as "name: why"
  std::vector<std::size_t> of_class;
  int least_height = 0, most_height = 0, least_width = 0, most_width = 0;
  std::array<double, 3> mean = {};       ///< of red, green and blue, for values from 0 to 1, each pixel once
  std::array<double, 3> deviation = {};  ///< the same
};

/// Decodes every image at its full size, on several threads; sums are of whole numbers, so that their order does not
/// matter. `progress` is called on this thread now and then, with the number of records done.
ImageStatistics image_statistics(const ImageSource& source, int threads,
                                 const std::function<void(std::size_t done)>& progress);

}  // namespace actzip::data
