// Batch norm on CUDA: forward is an encoding whose source also normalises. Backward sums over rows while it decodes,
// then decodes again into the gradient: reading 2 bits twice costs less than 16 once.
#include <cstdint>

#include "cuda/batch_norm.hpp"
#include "cuda/channel_access.cuh"
#include "cuda/rotated_kernels.cuh"
#include "dispatch.hpp"

namespace actzip::cuda {
namespace {

constexpr int kGroup = 256;
constexpr int kWarps = kThreads / kWarp;
static_assert(kWarps == codec::GradientSums::kWarps && kTile == codec::GradientSums::kTile);

__global__ void normalization_kernel(BatchStatistics statistics, std::uint32_t channels, float* data) {
  const std::uint32_t c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  const float mean = statistics.mean[c];
  const float inverse_deviation = rsqrtf(statistics.variance[c] + statistics.epsilon);
  const float scale = inverse_deviation * (statistics.weight != nullptr ? statistics.weight[c] : 1.0F);
  data[c] = scale;
  data[channels + c] = fmaf(-mean, scale, statistics.bias != nullptr ? statistics.bias[c] : 0.0F);
  data[2 * channels + c] = mean;
  data[3 * channels + c] = inverse_deviation;
}

/// What a lane adds up: for each of its numbers in a tile the gradient, and the gradient times the input without mean.
struct LaneSums {
  float gradient[kBlocks][kChunk] = {};
  float product[kBlocks][kChunk] = {};

  /// The decoded input of one block, and the gradient that counts.
  template <DType Type>
  __device__ void add(int block, const Chunk<Storage<Type>>& y_gradient, const std::uint32_t (&pairs)[4], Stats stats,
                      const float* mean) {
    float means[kChunk];
    load_channels(mean, 0, means);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const float2 pair = __half22float2(as_packed<__half2>(pairs[i / 2]));
      const float input = fmaf(i % 2 == 0 ? pair.x : pair.y, stats.second, stats.first);
      const float g = widen<Type>(y_gradient, i);
      gradient[block][i] += g;
      product[block][i] = fmaf(g, input - means[i], product[block][i]);
    }
  }
};

/// One number of a tile from each warp of a block, added in order.
[[nodiscard]] __device__ __forceinline__ float sum_of_warps(const float (&sums)[kWarps][kTile], std::uint32_t i) {
  float sum = sums[0][i];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) sum += sums[w][i];
  return sum;
}

/// The sums of a block, which come from tiles that begin at channel `phase`: by channel if a tile has them all, else by
/// place in the tile.
__device__ __forceinline__ void store_sums(const float (&lane_sums)[kBlocks][kChunk], float (&shared)[kWarps][kTile],
                                           std::uint32_t phase, std::uint32_t channels, float* out) {
  const std::uint32_t lane = threadIdx.x % kWarp;
  const std::uint32_t warp = threadIdx.x / kWarp;
  __syncthreads();
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) shared[warp][b * kBlock + lane * kChunk + i] = lane_sums[b][i];
  }
  __syncthreads();
  const std::uint32_t width = min(channels, static_cast<std::uint32_t>(kTile));
  for (std::uint32_t c = threadIdx.x; c < width; c += kThreads) {
    if (channels >= kTile) {
      out[c] = sum_of_warps(shared, c);
      continue;
    }
    float sum = 0.0F;
    for (std::uint32_t i = (c + channels - phase) % channels; i < kTile; i += channels) sum += sum_of_warps(shared, i);
    out[c] = sum;
  }
}

template <DType Type, int Bits>
__global__ void __launch_bounds__(kThreads, 4)
    gradient_sums_kernel(const __grid_constant__ RotatedBuffer src, const __grid_constant__ KernelSeed seed,
                         const void* y_gradient, const std::byte* positive, const float* mean, Channels channels,
                         float* out) {
  __shared__ float shared[kWarps][kTile];
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const math::HashKey key = seed.key();
  const LevelTable<Bits> table;
  LaneSums sums;
  const std::uint32_t phase = channels.of_tile(static_cast<std::int64_t>(blockIdx.x) * kTile);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarps;
  for (std::int64_t tile = blockIdx.x + static_cast<std::int64_t>(threadIdx.x / kWarp) * gridDim.x; tile < src.tiles;
       tile += step) {
    const bool full = (tile + 1) * kTile <= src.geometry.elems;
    Chunk<Storage<Type>> gradients[kBlocks] = {};
    EncodedChunk in[kBlocks] = {};
    std::uint32_t masks[kBlocks] = {};
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const std::int64_t first = tile * kTile + b * kBlock + lane * kChunk;
      if (!full && first >= src.geometry.elems) continue;
      gradients[b] = load_whole<Type>(y_gradient, first);
      masks[b] = positive != nullptr ? static_cast<std::uint32_t>(positive[first >> 3]) : 0xffU;
    }
    const TileCodes<Bits, true> codes(src, kGroup, tile, lane);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      if (!full && !slot_exists<false>(src.geometry, tile, b, lane)) continue;
      in[b].codes = static_cast<std::uint32_t>(load_codes<Bits>(codes.at(b), Bits));
      in[b].stats = load_stats(src.stats_section, tile * kBlocks + b, src.stats);
    }
    const Rotation<HalfHadamard> rotation(key, tile, lane, kGroup);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      std::uint32_t pairs[4];
      rotate_back<Bits>(in[b].codes, b, table, rotation, pairs);
      keep_masked<Type>(gradients[b], masks[b]);
      sums.add<Type>(b, gradients[b], pairs, in[b].stats, mean + channels.of(phase, b * kBlock + lane * kChunk));
    }
  }
  const std::uint32_t width = min(channels.count(), static_cast<std::uint32_t>(kTile));
  float* const own = out + static_cast<std::int64_t>(blockIdx.x) * 2 * width;
  store_sums(sums.gradient, shared, phase, channels.count(), own);
  store_sums(sums.product, shared, phase, channels.count(), own + width);
}

/// The sums of all blocks, by 32 channels and 32 rows of threads.
constexpr int kFinishRows = 32;

__global__ void __launch_bounds__(kWarp* kFinishRows)
    finish_sums_kernel(const float* sums, std::uint32_t blocks, Channels channels, codec::ChannelNumbers norm,
                       float inverse_rows, codec::GradientNumbers numbers, float* weight_gradient,
                       float* bias_gradient) {
  __shared__ float shared[2][kFinishRows][kWarp + 1];
  const std::uint32_t count = channels.count();
  const std::uint32_t width = min(count, static_cast<std::uint32_t>(kTile));
  const std::uint32_t c = blockIdx.x * kWarp + threadIdx.x;
  float gradient = 0.0F;
  float product = 0.0F;
  for (std::uint32_t block = threadIdx.y; c < count && block < blocks; block += kFinishRows) {
    const std::uint32_t phase = channels.of_tile(static_cast<std::int64_t>(block) * kTile);
    const std::uint32_t place = count < kTile ? c : (c + count - phase) % count;
    if (place >= width) continue;
    gradient += sums[block * 2 * width + place];
    product += sums[block * 2 * width + width + place];
  }
  shared[0][threadIdx.y][threadIdx.x] = gradient;
  shared[1][threadIdx.y][threadIdx.x] = product;
  __syncthreads();
  if (threadIdx.y != 0 || c >= count) return;
  for (int row = 1; row < kFinishRows; ++row) {
    gradient += shared[0][row][threadIdx.x];
    product += shared[1][row][threadIdx.x];
  }
  const float inverse_deviation = norm.inverse_deviation[c];
  const float scale = norm.scale[c];
  bias_gradient[c] = gradient;
  weight_gradient[c] = product * inverse_deviation;
  const float by_input = -scale * inverse_deviation * inverse_deviation * product * inverse_rows;
  numbers.by_gradient[c] = scale;
  numbers.by_input[c] = by_input;
  numbers.constant[c] = fmaf(-by_input, norm.mean[c], -scale * gradient * inverse_rows);
}

/// body.operator()<Type, Bits>().
template <class Body>
void with_type_and_bits(const Rotated& spec, DType dtype, Body&& body) {
  with_float(dtype, [&]<DType Type>() {
    with_bits<format::kMaxRotatedBits>(spec.bits, [&]<int Bits>() { body.template operator()<Type, Bits>(); });
  });
}

template <DType Type, int Bits, class Map>
void decode_mapped(const Rotated& spec, const codec::DenormalizedJob& job, const Map& map) {
  using Target = MappedTarget<Type, Map>;
  launch(rotated_decode_kernel<Type, Bits, kGroup, Target>, tile_count(job.decode.geometry), *job.decode.stream,
         rotated_buffer(spec, job.decode, job.decode.src), Target(job.decode.dst.data, job.channels, map, job.positive),
         KernelSeed(job.decode.seed));
}

}  // namespace

bool has_batch_norm() noexcept { return true; }

void normalization(const BatchStatistics& statistics, std::int64_t channels, float* data, const Stream& stream) {
  launch_blocks(normalization_kernel, format::ceil_div(channels, kThreads), kThreads, stream, statistics,
                static_cast<std::uint32_t>(channels), data);
}

void encode_normalized(const Rotated& spec, const codec::NormalizedJob& job) {
  const codec::EncodeJob& encode = job.encode;
  with_type_and_bits(spec, encode.src.dtype, [&]<DType Type, int Bits>() {
    using Source = NormalizingSource<Type>;
    launch(rotated_encode_kernel<Type, Bits, kGroup, Source>, tile_count(encode.geometry), *encode.stream,
           Source(encode.src.data, job), rotated_buffer(spec, encode, encode.dst), KernelSeed(encode.seed),
           Padding(encode.dst, encode.sections));
  });
}

void decode_normalized(const Rotated& spec, const codec::DenormalizedJob& job) {
  with_type_and_bits(spec, job.decode.dst.dtype,
                     [&]<DType Type, int Bits>() { decode_mapped<Type, Bits>(spec, job, OutputMap{job.norm}); });
}

void batch_norm_backward(const Rotated& spec, const codec::DenormalizedJob& job, const BatchNormGradients& gradients,
                         float* workspace) {
  const codec::DecodeJob& decode = job.decode;
  const std::int64_t elems = decode.geometry.elems;
  const ChannelRows shape{elems / job.channels, job.channels, decode.dst.dtype};
  const codec::GradientSums plan(shape);
  const codec::GradientNumbers numbers(workspace, job.channels);
  float* const sums = workspace + 3 * job.channels;
  const Channels channels(job.channels);
  with_type_and_bits(spec, decode.dst.dtype, [&]<DType Type, int Bits>() {
    launch_blocks(gradient_sums_kernel<Type, Bits>, plan.blocks, kThreads, *decode.stream,
                  rotated_buffer(spec, decode, decode.src), KernelSeed(decode.seed), gradients.y, job.positive,
                  job.norm.mean, channels, sums);
    launch_grid(finish_sums_kernel, dim3(static_cast<unsigned>(format::ceil_div(job.channels, kWarp))),
                dim3(kWarp, kFinishRows), *decode.stream, static_cast<const float*>(sums),
                static_cast<std::uint32_t>(plan.blocks), channels, job.norm, 1.0F / static_cast<float>(shape.rows),
                numbers, gradients.weight, gradients.bias);
    decode_mapped<Type, Bits>(spec, job, GradientMap{gradients.y, numbers});
  });
}

}  // namespace actzip::cuda
