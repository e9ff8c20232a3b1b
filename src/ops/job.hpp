// What fused operators pass to their kernels, all of it validated, and where the numbers of channels lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "actzip/activation.hpp"
#include "actzip/batch_norm.hpp"
#include "codec/job.hpp"
#include "format/geometry.hpp"

namespace actzip::ops {

/// Fused operators support `rotated` in groups of this size.
inline constexpr int kGroup = 256;

/// A gradient behind a mask.
struct MaskedGradientJob {
  Elements elements;
  const std::byte* mask;  ///< one bit per element
  const void* y_gradient;
  void* x_gradient;
  const Stream* stream;
};

/// Three numbers for each channel, from which the gradient of the input is computed: see GradientMap.
struct GradientNumbers {
  static constexpr std::int64_t kCount = 3;

  float* by_gradient;
  float* by_value;
  float* constant;

  GradientNumbers(float* data, std::int64_t channels)
      : by_gradient(data), by_value(data + channels), constant(data + 2 * channels) {}
};

/// Encodes the input of a batch norm while normalising it.
struct NormalizedJob {
  codec::EncodeJob encode;
  std::int64_t channels;
  Normalization norm;
  void* y;
  std::byte* positive;  ///< or null
};

/// Decodes the input of a batch norm into its output or into the gradient of the input.
struct DenormalizedJob {
  codec::DecodeJob decode;
  std::int64_t channels;
  Normalization norm;
  const std::byte* positive;  ///< or null
};

/// How sums over rows are computed: by blocks whose tiles all begin at the same channel. Their sums are contiguous in a
/// workspace.
struct ChannelSums {
  static constexpr std::int64_t kTile = 1024;
  static constexpr std::int64_t kWarps = 4;
  static constexpr std::int64_t kMostBlocks = 528;  ///< four for each of 132 multiprocessors

  std::int64_t channels;
  std::int64_t tiles;
  std::int64_t blocks;  ///< a multiple of the tiles after which the channels repeat
  std::int64_t width;   ///< sums of a block, of which there are two sets

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
  static constexpr std::int64_t kTilesOfWarp = 4;  ///< with fewer, the end of a block would cost too much
};

}  // namespace actzip::ops
