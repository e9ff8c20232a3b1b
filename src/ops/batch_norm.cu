// Batch norm on CUDA. Forward sums over rows, then encodes from a source that also normalises. Backward sums over rows
// while decoding, then decodes again into the gradient: reading 2 bits twice costs less than reading 16 bits once.
#include <cstdint>

#include "cuda/rotated_kernels.cuh"
#include "dispatch.hpp"
#include "ops/backend.hpp"
#include "ops/channel_sums.cuh"

namespace actzip::cuda {
namespace {

/// The sums of the input and of its square, both relative to the first row. That row is close enough to the mean to
/// avoid most of the cancellation.
template <DType Type>
struct InputSums {
  static constexpr int kBlocksOfMultiprocessor = 4;

  const void* x;
  std::int64_t elems;
  Channels channels;

  __device__ void add(LaneSums& sums, std::int64_t tile, int lane, std::uint32_t phase) const {
    Chunk<Storage<Type>> chunks[kBlocks];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const std::int64_t first = tile * kTile + b * kBlock + lane * kChunk;
      // Elements that do not exist are read from the first row, so they add nothing.
      chunks[b] = load_whole<Type>(x, first < elems ? first : channels.of(phase, b * kBlock + lane * kChunk));
    }
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const auto reference = load_whole<Type>(x, channels.of(phase, b * kBlock + lane * kChunk));
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        const float difference = widen<Type>(chunks[b], i) - widen<Type>(reference, i);
        sums.first[b][i] += difference;
        sums.second[b][i] = fmaf(difference, difference, sums.second[b][i]);
      }
    }
  }
};

/// Writes the numbers of a Normalization, and updates the running statistics.
template <DType Type>
struct FinishInput {
  const Storage<Type>* first_row;
  BatchNormParameters parameters;
  float rows;
  std::uint32_t channels;
  float* norm;

  __device__ void operator()(std::uint32_t c, float sum, float squares) const {
    const float offset = sum / rows;
    const float mean = math::Element<Type>::widen(first_row[c]) + offset;
    const float difference = fmaf(-offset, offset, squares / rows);
    const float variance = difference < 0.0F ? 0.0F : difference;  // unlike fmaxf(), this keeps NaN
    update(parameters.running_mean, c, mean);
    update(parameters.running_variance, c, variance * (rows / fmaxf(rows - 1.0F, 1.0F)));
    norm[c] = parameters.weight != nullptr ? parameters.weight[c] : 1.0F;
    norm[channels + c] = parameters.bias != nullptr ? parameters.bias[c] : 0.0F;
    norm[2 * channels + c] = mean;
    norm[3 * channels + c] = rsqrtf(variance + parameters.epsilon);
  }

 private:
  __device__ void update(float* running, std::uint32_t c, float value) const {
    if (running != nullptr) running[c] = fmaf(parameters.momentum, value - running[c], running[c]);
  }
};

/// The sums of the gradient, and of the gradient times the encoded value.
template <DType Type, int Bits>
struct GradientSums {
  static constexpr int kBlocksOfMultiprocessor = 4;
  static constexpr int kStages = Type == DType::f32 ? 2 : 3;

  /// All that is read for a full tile.
  struct Stage {
    static constexpr int kQuads = Chunk<Storage<Type>>::kWords / 4;  ///< 16 bytes each, of a chunk
    uint4 gradients[kBlocks * kWarp * kQuads];
    uint4 codes[kTile / 8 * Bits / 16];
    uint4 mask[kTile / 8 / 16];
    uint4 stats[2];
  };

  RotatedBuffer buffer;
  KernelSeed seed;
  const void* y_gradient;
  const std::byte* positive;

  [[nodiscard]] __device__ std::int64_t full_tiles() const { return buffer.geometry.elems / kTile; }

  __device__ void copy_ahead(Stage& stage, std::int64_t tile, int lane) const {
    constexpr int kStatBytes = kBlocks * 2;  // times the size of a statistic
    const auto* const gradients = static_cast<const Storage<Type>*>(y_gradient) + tile * kTile;
#pragma unroll
    for (int k = 0; k < kBlocks * Stage::kQuads; ++k) {
      cuda::copy_ahead(stage.gradients[k * kWarp + lane], reinterpret_cast<const uint4*>(gradients) + k * kWarp + lane);
    }
    const std::byte* const codes = buffer.codes + tile * (kTile / 8 * Bits);
    if (lane < kTile / 8 * Bits / 16) cuda::copy_ahead(stage.codes[lane], codes + lane * 16);
    if (positive != nullptr && lane < kTile / 8 / 16) {
      cuda::copy_ahead(stage.mask[lane], positive + tile * (kTile / 8) + lane * 16);
    }
    const int bytes = buffer.stats == StatsType::bf16 ? kStatBytes * 2 : kStatBytes * 4;
    if (lane < bytes / 16) cuda::copy_ahead(stage.stats[lane], buffer.stats_section + tile * bytes + lane * 16);
  }

  /// A full tile, from its stage.
  __device__ void add(LaneSums& sums, const Stage& stage, std::int64_t tile, int lane) const {
    const Rotation<HalfHadamard> rotation(seed.key(), tile, lane, ops::kGroup);
    const LevelTable<Bits> table;
    const auto* const codes = reinterpret_cast<const std::byte*>(stage.codes);
    const auto* const masks = reinterpret_cast<const std::uint8_t*>(stage.mask);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      Chunk<Storage<Type>> gradient;
#pragma unroll
      for (int k = 0; k < Stage::kQuads; ++k) {
        const uint4 four = stage.gradients[(b * kWarp + lane) * Stage::kQuads + k];
        gradient.w[4 * k] = four.x;
        gradient.w[4 * k + 1] = four.y;
        gradient.w[4 * k + 2] = four.z;
        gradient.w[4 * k + 3] = four.w;
      }
      EncodedChunk<Bits> in;
      in.codes = static_cast<EightCodes<Bits>>(load_codes<Bits>(codes + (b * kWarp + lane) * Bits, Bits));
      in.stats = load_stats(reinterpret_cast<const std::byte*>(stage.stats), b, buffer.stats);
      if (positive != nullptr) keep_masked<Type>(gradient, masks[b * kWarp + lane]);
      add_block(sums, b, in, gradient, table, rotation);
    }
  }

  /// Any tile.
  __device__ void add(LaneSums& sums, std::int64_t tile, int lane, std::uint32_t /*phase*/) const {
    const TileCodes<Bits, true> codes(buffer, ops::kGroup, tile, lane);
    const Rotation<HalfHadamard> rotation(seed.key(), tile, lane, ops::kGroup);
    const LevelTable<Bits> table;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const std::int64_t first = tile * kTile + b * kBlock + lane * kChunk;
      Chunk<Storage<Type>> gradient = {};
      EncodedChunk<Bits> in = {};
      if (slot_exists<false>(buffer.geometry, tile, b, lane)) {
        in.codes = static_cast<EightCodes<Bits>>(load_codes<Bits>(codes.at(b), Bits));
        in.stats = load_stats(buffer.stats_section, tile * kBlocks + b, buffer.stats);
      }
      if (first < buffer.geometry.elems) {
        gradient = load_whole<Type>(y_gradient, first);
        keep_masked<Type>(gradient, mask_bits(positive, first));
      }
      add_block(sums, b, in, gradient, table, rotation);
    }
  }

 private:
  __device__ static void add_block(LaneSums& sums, int block, const EncodedChunk<Bits>& in,
                                   const Chunk<Storage<Type>>& gradients, const LevelTable<Bits>& table,
                                   const Rotation<HalfHadamard>& rotation) {
    std::uint32_t pairs[4];
    rotate_back<Bits>(in.codes, block, table, rotation, pairs);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const float2 pair = __half22float2(as_packed<__half2>(pairs[i / 2]));
      const float value = fmaf(i % 2 == 0 ? pair.x : pair.y, in.stats.second, in.stats.first);
      const float gradient = widen<Type>(gradients, i);
      sums.first[block][i] += gradient;
      sums.second[block][i] = fmaf(gradient, value, sums.second[block][i]);
    }
  }
};

/// Writes the gradients of weight and bias, and the numbers of GradientMap. If inputs were encoded, the mean's
/// contribution to the second sum is subtracted here. In f32 that costs less precision than coding with 4 bits, up to
/// means of a thousand deviations.
struct FinishGradient {
  NormValues values;
  Normalization norm;
  ops::GradientNumbers numbers;
  float inverse_rows;
  float* weight;
  float* bias;

  __device__ void operator()(std::uint32_t c, float gradient, float product) const {
    const bool is_input = values == NormValues::input;
    const float inverse_deviation = norm.inverse_deviation[c];
    const float scale = (norm.weight != nullptr ? norm.weight[c] : 1.0F) * inverse_deviation;
    const float by_normal = is_input ? fmaf(-norm.mean[c], gradient, product) * inverse_deviation : product;
    const float by_value = -scale * by_normal * inverse_rows * (is_input ? inverse_deviation : 1.0F);
    bias[c] = gradient;
    weight[c] = by_normal;
    numbers.by_gradient[c] = scale;
    numbers.by_value[c] = by_value;
    numbers.constant[c] = fmaf(-scale * gradient, inverse_rows, is_input ? -by_value * norm.mean[c] : 0.0F);
  }
};

template <DType Type, int Bits, class Map>
void decode_mapped(const Rotated& spec, const ops::DenormalizedJob& job, const Map& map) {
  using Target = MappedTarget<Type, Map>;
  launch(rotated_decode_kernel<Type, Bits, ops::kGroup, Target>, tile_count(job.decode.geometry), *job.decode.stream,
         rotated_buffer(spec, job.decode, job.decode.src), Target(job.decode.dst.data, job.channels, map),
         KernelSeed(job.decode.seed));
}

}  // namespace

void measure_batch(const ChannelRows& shape, const void* x, const BatchNormParameters& parameters, float* norm,
                   float* workspace, const Stream& stream) {
  with_float(shape.dtype, [&]<DType Type>() {
    const InputSums<Type> source{x, shape.elems(), Channels(shape.channels)};
    const FinishInput<Type> finish{static_cast<const Storage<Type>*>(x), parameters, static_cast<float>(shape.rows),
                                   static_cast<std::uint32_t>(shape.channels), norm};
    sum_channels(source, finish, ops::ChannelSums(shape), workspace, stream);
  });
}

void encode_normalized(const Rotated& spec, const ops::NormalizedJob& job) {
  const codec::EncodeJob& encode = job.encode;
  with_type_and_bits(encode.src.dtype, spec, [&]<DType Type, int Bits>() {
    using Source = NormalizingSource<Type>;
    launch(rotated_encode_kernel<Type, Bits, ops::kGroup, Source>, tile_count(encode.geometry), *encode.stream,
           Source(encode.src.data, job), rotated_buffer(spec, encode, encode.dst), KernelSeed(encode.seed),
           Padding(encode.dst, encode.sections));
  });
}

void decode_normalized(const Rotated& spec, const ops::DenormalizedJob& job) {
  with_type_and_bits(job.decode.dst.dtype, spec,
                     [&]<DType Type, int Bits>() {
                       decode_mapped<Type, Bits>(spec, job, OutputMap{job.norm, job.positive});
                     });
}

void batch_norm_backward(const Rotated& spec, const ops::DenormalizedJob& job, NormValues values,
                         const BatchNormGradients& gradients, float* workspace) {
  const codec::DecodeJob& decode = job.decode;
  const ChannelRows shape{decode.geometry.elems / job.channels, job.channels, decode.dst.dtype};
  const ops::GradientNumbers numbers(workspace, job.channels);
  const FinishGradient finish{values,           job.norm,      numbers, 1.0F / static_cast<float>(shape.rows),
                              gradients.weight, gradients.bias};
  with_type_and_bits(shape.dtype, spec, [&]<DType Type, int Bits>() {
    const GradientSums<Type, Bits> source{rotated_buffer(spec, decode, decode.src), KernelSeed(decode.seed),
                                          gradients.y, job.positive};
    sum_channels(source, finish, ops::ChannelSums(shape), workspace + ops::GradientNumbers::kCount * job.channels,
                 *decode.stream);
    decode_mapped<Type, Bits>(spec, job, GradientMap{gradients.y, numbers, job.positive});
  });
}

}  // namespace actzip::cuda
