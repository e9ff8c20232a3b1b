// Access classes that process elements by channel while loading or storing them. Rows of channels are contiguous, and a
// chunk has eight neighbouring channels of one row.
#pragma once

#include <cstdint>

#include "cuda/chunk.cuh"
#include "cuda/rotated_decode.cuh"
#include "cuda/values.cuh"
#include "ops/job.hpp"

namespace actzip::cuda {

/// Where a chunk lies in rows of channels.
struct RowPlace {
  std::uint32_t row;
  std::uint32_t channel;
};

/// Computes the channel of an element. Divides once for a tile; within it, a product with the reciprocal is exact,
/// because the numbers are below 2^16.
class Channels {
 public:
  explicit Channels(std::int64_t count)
      : count_(static_cast<std::uint32_t>(count)), reciprocal_(static_cast<std::uint32_t>((1ULL << 32) / count + 1)) {}

  [[nodiscard]] __device__ std::uint32_t count() const { return count_; }

  /// The channel of the first element of the tile that contains `element`.
  [[nodiscard]] __device__ std::uint32_t of_tile(std::int64_t element) const {
    return (static_cast<std::uint32_t>(element) & ~static_cast<std::uint32_t>(kTile - 1)) % count_;
  }
  /// The channel of element `inside` of a tile whose first element has channel `phase`.
  [[nodiscard]] __device__ std::uint32_t of(std::uint32_t phase, int inside) const {
    const std::uint32_t sum = phase + static_cast<std::uint32_t>(inside);
    return sum - __umulhi(sum, reciprocal_) * count_;
  }
  /// The channel of element first + offset, in the tile of `first`.
  [[nodiscard]] __device__ std::uint32_t of_element(std::int64_t first, int offset) const {
    return of(of_tile(first), static_cast<int>(first & (kTile - 1)) + offset);
  }
  /// The same with the row.
  [[nodiscard]] __device__ RowPlace place(std::int64_t first, int offset) const {
    const std::uint32_t tile = static_cast<std::uint32_t>(first) & ~static_cast<std::uint32_t>(kTile - 1);
    const std::uint32_t tile_row = tile / count_;
    const std::uint32_t sum = tile - tile_row * count_ + (static_cast<std::uint32_t>(first) & (kTile - 1)) +
                              static_cast<std::uint32_t>(offset);
    const std::uint32_t rows = __umulhi(sum, reciprocal_);
    return {tile_row + rows, sum - rows * count_};
  }

 private:
  std::uint32_t count_;
  std::uint32_t reciprocal_;
};

/// Loads the numbers of eight neighbouring channels.
__device__ __forceinline__ void load_channels(const float* numbers, std::uint32_t channel, float (&out)[kChunk]) {
  const auto* const at = reinterpret_cast<const float4*>(numbers + channel);
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const float4 four = __ldg(at + k);
    out[4 * k] = four.x;
    out[4 * k + 1] = four.y;
    out[4 * k + 2] = four.z;
    out[4 * k + 3] = four.w;
  }
}

/// Which of eight elements are above 0, or NaN.
template <DType Type>
[[nodiscard]] __device__ __forceinline__ std::uint32_t positive_bits(const Chunk<Storage<Type>>& chunk) {
  std::uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) bits |= !(widen<Type>(chunk, i) <= 0.0F) ? 1U << i : 0U;
  return bits;
}

/// Loads a chunk that exists as a whole: the number of channels is a multiple of eight.
template <DType Type>
[[nodiscard]] __device__ __forceinline__ Chunk<Storage<Type>> load_whole(const void* data, std::int64_t first) {
  Chunk<Storage<Type>> chunk;
  const auto* const at = reinterpret_cast<const uint4*>(static_cast<const Storage<Type>*>(data) + first);
#pragma unroll
  for (int k = 0; k < Chunk<Storage<Type>>::kWords / 4; ++k) {
    const uint4 four = __ldg(at + k);
    chunk.w[4 * k] = four.x;
    chunk.w[4 * k + 1] = four.y;
    chunk.w[4 * k + 2] = four.z;
    chunk.w[4 * k + 3] = four.w;
  }
  return chunk;
}

/// The result of a norm: normalised values with weight and bias.
template <DType Type>
[[nodiscard]] __device__ __forceinline__ Chunk<Storage<Type>> with_weight(const Normalization& norm,
                                                                          std::uint32_t channel,
                                                                          float (&values)[kChunk]) {
  float weight[kChunk];
  float bias[kChunk];
  load_channels(norm.weight, channel, weight);
  load_channels(norm.bias, channel, bias);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) values[i] = fmaf(values[i], weight[i], bias[i]);
  return rounded<Type>(values);
}

/// The source of an encoding. Loaded elements are normalised and encoded; with weight and bias they are the result of
/// the norm, which is stored.
template <DType Type>
class NormalizingSource : public DenseAccess<Storage<Type>> {
 public:
  NormalizingSource(const void* x, const ops::NormalizedJob& job)
      : DenseAccess<Storage<Type>>(x, {}),
        y_(job.y, {}),
        channels_(job.channels),
        norm_{job.norm},
        positive_(job.positive) {}

  [[nodiscard]] __device__ Chunk<Storage<Type>> after_load(std::int64_t first, int offset,
                                                           const Chunk<Storage<Type>>& x) const {
    const std::uint32_t channel = channels_.of_element(first, offset);
    float mean[kChunk];
    float inverse_deviation[kChunk];
    load_channels(norm_.mean, channel, mean);
    load_channels(norm_.inverse_deviation, channel, inverse_deviation);
    float values[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) values[i] = (widen<Type>(x, i) - mean[i]) * inverse_deviation[i];
    const Chunk<Storage<Type>> normal = rounded<Type>(values);
    const Chunk<Storage<Type>> y = with_weight<Type>(norm_, channel, values);
    if (positive_ != nullptr) positive_[(first + offset) >> 3] = static_cast<std::byte>(positive_bits<Type>(y));
    y_.store(first + offset, kChunk, y);
    return normal;
  }

 private:
  DenseAccess<Storage<Type>> y_;
  Channels channels_;
  Normalization norm_;
  std::byte* positive_;
};

/// The bits of `positive` for the chunk that begins with `element`; ones if it is null.
[[nodiscard]] __device__ __forceinline__ std::uint32_t mask_bits(const std::byte* positive, std::int64_t element) {
  if (positive == nullptr) return 0xffU;
  return static_cast<std::uint32_t>(__ldg(reinterpret_cast<const unsigned char*>(positive) + (element >> 3)));
}

/// The target of a decoding: stores map.of() of the decoded values.
template <DType Type, class Map>
class MappedTarget {
 public:
  static constexpr bool kDense = true;
  static constexpr int kBlocksOfMultiprocessor = Map::kBlocksOfMultiprocessor;
  using Ahead = typename Map::template Ahead<Type>;

  MappedTarget(void* data, std::int64_t channels, const Map& map) : target_(data, {}), channels_(channels), map_(map) {}

  [[nodiscard]] __device__ Ahead load_ahead(std::int64_t first) const { return map_.template load_ahead<Type>(first); }

  __device__ void store_full(std::int64_t first, int offset, const Chunk<Storage<Type>>& x, const Ahead& ahead) const {
    target_.store_full(first, offset, map_.template of<Type>(channels_.place(first, offset), x, ahead));
  }
  __device__ void store(std::int64_t first, int /*count*/, const Chunk<Storage<Type>>& x) const {
    target_.store(first, kChunk, map_.template of<Type>(channels_.place(first, 0), x, load_ahead(first)));
  }

 private:
  DenseAccess<Storage<Type>> target_;
  Channels channels_;
  Map map_;
};

/// The output of a batch norm, followed by a ReLU if there is a mask.
struct OutputMap {
  static constexpr int kBlocksOfMultiprocessor = 8;  ///< few, because the channels' numbers need registers
  template <DType Type>
  using Ahead = std::uint32_t;  ///< the mask

  Normalization norm;
  const std::byte* positive;  ///< or null

  template <DType Type>
  [[nodiscard]] __device__ Ahead<Type> load_ahead(std::int64_t first) const {
    return mask_bits(positive, first);
  }

  template <DType Type>
  [[nodiscard]] __device__ Chunk<Storage<Type>> of(const RowPlace& at, const Chunk<Storage<Type>>& x,
                                                   std::uint32_t mask) const {
    float values[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) values[i] = widen<Type>(x, i);
    Chunk<Storage<Type>> y = with_weight<Type>(norm, at.channel, values);
    keep_masked<Type>(y, mask);
    return y;
  }
};

/// The gradient of the input: the sum of multiples of the output's gradient and of the encoded value, and a constant.
struct GradientMap {
  static constexpr int kBlocksOfMultiprocessor = 6;  ///< fewer, because gradients need registers, too
  template <DType Type>
  struct Ahead {
    Chunk<Storage<Type>> gradient;
    std::uint32_t mask;
  };

  const void* y_gradient;
  ops::GradientNumbers numbers;
  const std::byte* positive;  ///< or null

  template <DType Type>
  [[nodiscard]] __device__ Ahead<Type> load_ahead(std::int64_t first) const {
    return {load_whole<Type>(y_gradient, first), mask_bits(positive, first)};
  }

  template <DType Type>
  [[nodiscard]] __device__ Chunk<Storage<Type>> of(const RowPlace& at, const Chunk<Storage<Type>>& x,
                                                   Ahead<Type> ahead) const {
    keep_masked<Type>(ahead.gradient, ahead.mask);
    float by_gradient[kChunk];
    float by_value[kChunk];
    float constant[kChunk];
    load_channels(numbers.by_gradient, at.channel, by_gradient);
    load_channels(numbers.by_value, at.channel, by_value);
    load_channels(numbers.constant, at.channel, constant);
    float values[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      values[i] =
          fmaf(widen<Type>(ahead.gradient, i), by_gradient[i], fmaf(widen<Type>(x, i), by_value[i], constant[i]));
    }
    return rounded<Type>(values);
  }
};

}  // namespace actzip::cuda
