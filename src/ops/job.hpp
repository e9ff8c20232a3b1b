// What fused operators hand to their kernels: everything is validated. Where numbers of channels lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "actzip/activation.hpp"
#include "actzip/batch_norm.hpp"
#include "codec/job.hpp"
#include "format/geometry.hpp"

namespace actzip::ops {

/// Fused operators take `rotated` in groups of so many.
inline constexpr int kGroup = 256;

/// A gradient behind a mask.
struct MaskedGradientJob {
  Elements elements;
  const std::byte* mask;  ///< one bit an element
  const void* y_gradient;
  void* x_gradient;
  const Stream* stream;
};

/// The three numbers of each channel by which the gradient of the input is made.
struct GradientNumbers {
  static constexpr std::int64_t kCount = 3;

  float* by_gradient;
  float* by_value;
  float* constant;

  GradientNumbers(float* data, std::int64_t channels)
      : by_gradient(data), by_value(data + channels), constant(data + 2 * channels) {}
};

/// An encoding whose source is a batch norm's input.
struct NormalizedJob {
  codec::EncodeJob encode;
  std::int64_t channels;
  Normalization norm;
  void* y;
  std::byte* positive;  ///< or null
};

/// A decoding of a batch norm's input, whose target is its output or the gradient of the input.
struct DenormalizedJob {
  codec::DecodeJob decode;
  std::int64_t channels;
  Normalization norm;
  const std::byte* positive;  ///< or null
};

/// How sums over rows are made: blocks whose tiles begin at one channel each, and their sums behind each other in a
/// workspace.
struct ChannelSums {
  static constexpr std::int64_t kTile = 1024;
  static constexpr std::int64_t kWarps = 4;
  static constexpr std::int64_t kMostBlocks = 528;  ///< four a multiprocessor of the largest devices of today

  std::int64_t channels;
  std::int64_t tiles;
  std::int64_t blocks;  ///< so many tiles on the channels are the same again
  std::int64_t width;   ///< sums of a block, twice

  explicit ChannelSums(const ChannelRows& shape)
      : channels(shape.channels), tiles(format::ceil_div(shape.elems(), kTile)) {
    std::int64_t period = channels;  // in tiles: channels / gcd(channels, kTile)
    for (std::int64_t part = kTile; part > 1 && period % 2 == 0; part /= 2) period /= 2;
    const std::int64_t wanted = format::ceil_div(tiles, kWarps * kTilesOfWarp);
    const std::int64_t most = wanted < kMostBlocks ? wanted : kMostBlocks;
    blocks = format::ceil_div(most, period) * period;
    width = channels < kTile ? channels : kTile;
  }

  [[nodiscard]] std::int64_t floats() const { return blocks * 2 * width; }

 private:
  static constexpr std::int64_t kTilesOfWarp = 4;  ///< fewer are not worth a block's end
};

}  // namespace actzip::ops
