// What the codec layer hands to a backend for a gradient behind a mask: everything is validated.
#pragma once

#include <cstddef>

#include "actzip/activation.hpp"

namespace actzip::codec {

struct MaskedGradientJob {
  actzip::Elements elements;
  const std::byte* mask;  ///< one bit an element
  const void* y_gradient;
  void* x_gradient;
  const Stream* stream;
};

}  // namespace actzip::codec
