#include "pixel_normalization.hpp"

#include <cstring>

namespace actzip::data {
namespace {

using Bytes16 = std::uint8_t __attribute__((vector_size(16)));
using Words4 = std::int32_t __attribute__((vector_size(16)));
using Floats4 = float __attribute__((vector_size(16)));

/// Loads four pixels of three bytes, one into each 32-bit word.
template <bool kFlip>
[[gnu::always_inline]] inline Words4 four_pixels(const std::uint8_t* pixels) {
  Bytes16 bytes;
  std::memcpy(&bytes, pixels, sizeof(bytes));
  if constexpr (kFlip) {
    bytes = __builtin_shufflevector(bytes, bytes, 9, 10, 11, 15, 6, 7, 8, 15, 3, 4, 5, 15, 0, 1, 2, 15);
  } else {
    bytes = __builtin_shufflevector(bytes, bytes, 0, 1, 2, 15, 3, 4, 5, 15, 6, 7, 8, 15, 9, 10, 11, 15);
  }
  Words4 words;
  std::memcpy(&words, &bytes, sizeof(words));
  return words;
}

template <bool kFlip>
[[gnu::always_inline]] inline void spread(const std::uint8_t* pixels, std::size_t stride, std::size_t size,
                                          const PixelNormalization& given, float* target) {
  const PixelNormalization normalization =
      given;  // a copy, because `target` might alias `given` and force a reload after each store
  const std::size_t plane = size * size;
  for (std::size_t y = 0; y < size; ++y, pixels += stride, target += size) {
    std::size_t x = 0;
    for (; x + 4 <= size; x += 4) {
      const Words4 words = four_pixels<kFlip>(pixels + 3 * (kFlip ? size - 4 - x : x));
      for (std::size_t c = 0; c < 3; ++c) {
        const Words4 values = (words >> static_cast<int>(8 * c)) & 255;
        const Floats4 floats =
            __builtin_convertvector(values, Floats4) * normalization.gain[c] + normalization.offset[c];
        std::memcpy(target + c * plane + x, &floats, sizeof(floats));
      }
    }
    for (; x < size; ++x) {
      const std::uint8_t* pixel = pixels + 3 * (kFlip ? size - 1 - x : x);
      for (std::size_t c = 0; c < 3; ++c) {
        target[c * plane + x] = static_cast<float>(pixel[c]) * normalization.gain[c] + normalization.offset[c];
      }
    }
  }
}

}  // namespace

ACTZIP_CLONES void spread_pixels(const std::uint8_t* pixels, std::size_t stride, std::size_t size, bool flip,
                                 const PixelNormalization& normalization, float* target) {
  flip ? spread<true>(pixels, stride, size, normalization, target)
       : spread<false>(pixels, stride, size, normalization, target);
}

}  // namespace actzip::data
