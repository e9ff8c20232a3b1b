// Statistics over all images of a source.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "images.hpp"

namespace actzip::data {

struct ImageStatistics {
  std::size_t images = 0;            ///< number of usable images
  std::vector<std::string> damaged;  ///< the others, in order, as "name: why"
  std::vector<std::size_t> of_class;
  int least_height = 0, most_height = 0, least_width = 0, most_width = 0;
  std::array<double, 3> mean = {};       ///< over all pixels, of red, green and blue as values from 0 to 1
  std::array<double, 3> deviation = {};  ///< likewise
};

/// Decodes every image at full size on several threads. Sums integers, so the result does not depend on their order.
/// Calls `progress` on the calling thread at intervals, with the number of records done.
ImageStatistics image_statistics(const ImageSource& source, int threads,
                                 const std::function<void(std::size_t done)>& progress);

}  // namespace actzip::data
