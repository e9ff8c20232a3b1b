// `dual` on CUDA. Maps that lie one behind the other and fit into shared memory are measured and coded by one launch,
// which reads them once; others take two: one measures (dual_measure.cuh), one codes. Coding and decoding are
// elementwise; what differs is how often neighbours have to be asked where they lie.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <type_traits>

#include "cuda/backend.hpp"
#include "cuda/dual_buffer.cuh"
#include "cuda/dual_measure.cuh"
#include "cuda/launch.cuh"
#include "cuda/levels.cuh"
#include "cuda/segment_bits.cuh"
#include "dispatch.hpp"
#include "math/dual.hpp"

namespace actzip::cuda {
namespace {

/// What the elements of a chunk are coded against.
struct ChunkLevels {
  float average[kChunk];
  float min[kChunk];
  float step[kChunk];
};

/// Maps lie one behind the other, and runs of `Run` elements lie in one block: the width is a multiple of it.
template <int Run>
struct ByRuns {
  static constexpr bool kOneChannel = true;
  __device__ static ChunkLevels of(const DualBuffer& buffer, std::int64_t first, int count) {
    ChunkLevels levels = {};
    DualPlace place(buffer, first);
    std::int64_t map = -1;
    Stats stats = {};
#pragma unroll
    for (int i = 0; i < kChunk; i += Run) {
      if (i >= count) break;
      if (place.sample != map) {
        map = place.sample;
        stats = load_stats(buffer.stats, map, StatsType::bf16);
      }
      const float average = buffer.average(buffer.average_index(map, place.block(buffer), 0));
#pragma unroll
      for (int j = i; j < i + Run; ++j) {
        levels.average[j] = average;
        levels.min[j] = stats.first;
        levels.step[j] = stats.second;
      }
      place.template advance<Run>(buffer);
    }
    return levels;
  }
};

/// Channels lie last, and there is a multiple of eight: a chunk lies at one position.
struct ByEightChannels {
  static constexpr bool kOneChannel = false;
  __device__ static ChunkLevels of(const DualBuffer& buffer, std::int64_t first, int count) {
    ChunkLevels levels = {};
    if (count <= 0) return levels;
    const DualPlace place(buffer, first);
    const std::int64_t at = buffer.average_index(place.sample, place.block(buffer), place.channel);
    const uint4 averages = *reinterpret_cast<const uint4*>(buffer.averages + at);
    const std::uint32_t pairs[4] = {averages.x, averages.y, averages.z, averages.w};
    const auto* const stats =
        reinterpret_cast<const uint4*>(buffer.stats) + (place.sample * buffer.channels + place.channel) / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 four = stats[half];
      const std::uint32_t words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int i = 4 * half + k;
        const Stats own = bf16_stats(words[k]);
        levels.average[i] = math::float_of(i % 2 == 0 ? pairs[i / 2] << 16 : pairs[i / 2] & 0xffff0000U);
        levels.min[i] = own.first;
        levels.step[i] = own.second;
      }
    }
    return levels;
  }
};

/// Any maps.
struct ByElement {
  static constexpr bool kOneChannel = false;
  __device__ static ChunkLevels of(const DualBuffer& buffer, std::int64_t first, int count) {
    ChunkLevels levels = {};
    DualPlace place(buffer, first);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i >= count) break;
      const Stats stats = load_stats(buffer.stats, place.sample * buffer.channels + place.channel, StatsType::bf16);
      levels.average[i] = buffer.average(buffer.average_index(place.sample, place.block(buffer), place.channel));
      levels.min[i] = stats.first;
      levels.step[i] = stats.second;
      if (++place.channel < buffer.channels) continue;
      place.channel = 0;
      place.template advance<1>(buffer);
    }
    return levels;
  }
};

/// body.operator()<Levels>() with what fits the layout; `dense` says how the elements are accessed.
template <class Body>
void with_levels(const format::DualLayout& layout, bool dense, Body&& body) {
  const auto runs_of = [&](int run) { return layout.width % run == 0 && run <= 1 << layout.shift; };
  if (!dense) return body.template operator()<ByElement>();
  if (layout.channels == 1 && runs_of(8)) return body.template operator()<ByRuns<8>>();
  if (layout.channels == 1 && runs_of(4)) return body.template operator()<ByRuns<4>>();
  if (layout.channels == 1 && runs_of(2)) return body.template operator()<ByRuns<2>>();
  if (layout.channels == 1) return body.template operator()<ByRuns<1>>();
  if (layout.channels % kChunk == 0) return body.template operator()<ByEightChannels>();
  body.template operator()<ByElement>();
}

/// Codes of eight elements from `first` on, of which there may be fewer, or none. Blocks have kThreads threads.
template <DType Type, class Levels>
__device__ __forceinline__ void encode_chunk(const Chunk<Storage<Type>>& chunk, const DualBuffer& dst, int bits,
                                             math::HashKey key, std::int64_t first) {
  const int count = count_from(first, dst.layout.elems);
  const ChunkLevels levels = Levels::of(dst, first, count);
  const TileNoise noise(key, first / kTile);
  const std::uint32_t quad = static_cast<std::uint32_t>(first) % kTile / 4;
  std::uint32_t quads[2];
#pragma unroll
  for (std::uint32_t q = 0; q < 2; ++q) {
    std::uint32_t steps[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i = 4 * q + k;
      const float step = levels.step[i];
      const math::AffineGroup group{levels.min[i], step, step == 0.0F ? 0.0F : 1.0F / step, ~0U, math::kAffineNoFloor};
      const float residual = widen<Type>(chunk, i) - levels.average[i];
      // What cannot be represented has codes 0.
      steps[k] = math::is_nan(group.min) ? 0U : math::affine_steps<true>(residual, group);
    }
    quads[q] = four_codes<true>(steps, noise.of_quad(quad ^ q));
  }
  with_width<kOwnBits, format::kMaxBits>(bits, [&]<int Width>() {
    const std::int64_t at = first / kChunk * Width;
    std::uint64_t packed = pack_bytes<Width>(quads[0], quads[1]);
    if (count < kChunk) packed &= (std::uint64_t{1} << (count * Width)) - 1;
    store_codes<Width>(dst.codes + at, packed, dst.codes_bytes - at);
  });
}

template <DType Type, class Levels, class Access>
__global__ void __launch_bounds__(kThreads, 8)
    dual_encode_kernel(const __grid_constant__ Access src, const __grid_constant__ DualBuffer dst, int bits,
                       const __grid_constant__ KernelSeed seed, const __grid_constant__ Padding padding) {
  padding.zero();
  const std::int64_t elems = dst.layout.elems;
  const math::HashKey key = seed.key();
  on_tile(format::ceil_div(elems, kTile), [&](std::int64_t tile, std::uint32_t lane) {
    const auto first = [&](int j) { return tile * kTile + (j * kWarp + lane) * kChunk; };
    Chunk<Storage<Type>> chunks[kChunksPerLane];
#pragma unroll
    for (int j = 0; j < kChunksPerLane; ++j) chunks[j] = src.load(first(j), count_from(first(j), elems));
#pragma unroll
    for (int j = 0; j < kChunksPerLane; ++j) encode_chunk<Type, Levels>(chunks[j], dst, bits, key, first(j));
  });
}

/// The elements of a thread block's maps.
extern __shared__ uint4 shared_elements[];

/// Takes `maps` whole maps, which begin at a multiple of eight elements.
template <DType Type, class Levels>
__global__ void __launch_bounds__(kThreads, 8)
    dual_fused_kernel(const __grid_constant__ DenseAccess<Storage<Type>> src, const __grid_constant__ DualBuffer dst,
                      int bits, std::uint32_t maps, const __grid_constant__ KernelSeed seed,
                      const __grid_constant__ Padding padding) {
  __shared__ MapExtremes extremes;
  using Elements = Chunk<Storage<Type>>;
  constexpr std::uint32_t kStep = kThreads * kChunk;
  padding.zero();
  auto* const chunks = reinterpret_cast<Elements*>(shared_elements);
  const auto* const elements = reinterpret_cast<const Storage<Type>*>(shared_elements);
  const std::int64_t first_map = static_cast<std::int64_t>(blockIdx.x) * maps;
  const std::int64_t first = first_map * dst.positions;
  const auto own = static_cast<std::uint32_t>(min(static_cast<std::int64_t>(maps), dst.layout.samples - first_map));
  const auto count =
      static_cast<std::uint32_t>(min(static_cast<std::int64_t>(maps) * dst.positions, dst.layout.elems - first));

  for (std::uint32_t i = threadIdx.x * kChunk; i < count; i += kChunksPerLane * kStep) {
    Elements loaded[kChunksPerLane];
#pragma unroll
    for (std::uint32_t j = 0; j < kChunksPerLane; ++j) {
      const std::int64_t at = first + i + j * kStep;
      if (i + j * kStep < count) loaded[j] = src.load(at, count_from(at, dst.layout.elems));
    }
#pragma unroll
    for (std::uint32_t j = 0; j < kChunksPerLane; ++j) {
      if (i + j * kStep < count) chunks[(i + j * kStep) / kChunk] = loaded[j];
    }
  }
  measure_maps<Type, kThreads>(dst, bits, first_map, own, extremes, [&](std::uint32_t map, std::uint32_t position) {
    return elements[map * dst.positions + position];
  });
  const math::HashKey key = seed.key();
  // The last run of codes is padded to whole words: four chunks fill words at every width.
  const bool is_last = first + count == dst.layout.elems;
  const std::uint32_t end = is_last ? (count + 4 * kChunk - 1) / (4 * kChunk) * (4 * kChunk) : count;
  for (std::uint32_t i = threadIdx.x * kChunk; i < end; i += kStep) {
    encode_chunk<Type, Levels>(i < count ? chunks[i / kChunk] : Elements{}, dst, bits, key, first + i);
  }
}

/// Codes as bytes of two words.
template <int Width>
__device__ __forceinline__ void load_code_bytes(const DualBuffer& src, std::int64_t number,
                                                std::uint32_t (&codes)[kChunk]) {
  const std::uint64_t packed = load_codes<Width>(src.codes + number * Width, src.codes_bytes - number * Width);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) codes[i] = format::unpack<Width>(packed, i);
}

template <DType Type, class Levels, class Access>
__global__ void __launch_bounds__(kThreads, 8)
    dual_decode_kernel(const __grid_constant__ DualBuffer src, const __grid_constant__ Access dst, int bits,
                       bool dithered, const __grid_constant__ KernelSeed seed) {
  const std::int64_t elems = src.layout.elems;
  const math::HashKey key = seed.key();
  on_tile(format::ceil_div(elems, kTile), [&](std::int64_t tile, std::uint32_t lane) {
    const TileNoise noise(key, tile);
    std::uint32_t codes[kChunksPerLane][kChunk] = {};
    with_width<kOwnBits, format::kMaxBits>(bits, [&]<int Width>() {
#pragma unroll
      for (int j = 0; j < kChunksPerLane; ++j) {
        load_code_bytes<Width>(src, tile * (kTile / kChunk) + j * kWarp + lane, codes[j]);
      }
    });
#pragma unroll
    for (int j = 0; j < kChunksPerLane; ++j) {
      const std::uint32_t number = j * kWarp + lane;
      const std::int64_t first = tile * kTile + number * kChunk;
      const ChunkLevels levels = Levels::of(src, first, count_from(first, elems));
      float values[kChunk];
      bool any_nan = false;
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        const std::uint32_t word = dithered ? noise.of_quad(2 * number ^ q) : 0U;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int i = 4 * q + k;
          std::uint32_t at = math::kAffineZero + (codes[j][i] << math::kAffineValueBit);
          if (dithered) at += 255U - 2U * (word >> (8 * k) & 255U);
          values[i] = math::affine_value(at, levels.min[i], levels.step[i]) + levels.average[i];
          any_nan = any_nan || math::is_nan(values[i]);
        }
      }
      Chunk<Storage<Type>> chunk = {};
      narrow<Type>(values, chunk.w);
      if (any_nan) {
        chunk = {};
#pragma unroll
        for (int i = 0; i < kChunk; ++i) chunk.set(i, math::Element<Type>::narrow(values[i]));
      }
      store_tile_chunk(dst, tile, first, elems, chunk);
    }
  });
}

/// Averages and statistics of all maps.
template <DType Type, class Access>
void measure(const Dual& spec, const codec::EncodeJob& job, const Access& access, const DualBuffer& buffer) {
  const format::DualLayout& layout = buffer.layout;
  if (layout.channels > 1) {
    constexpr std::int64_t kMostWarps = kMeasureThreads / kWarp;
    const std::int64_t tiles = format::ceil_div(layout.channels, kWarp);
    const auto warps = static_cast<int>(std::min(layout.blocks, kMostWarps));
    return launch_blocks(dual_measure_channels_kernel<Type, Access>, checked_blocks(layout.samples * tiles),
                         warps * kWarp, *job.stream, access, buffer, spec.bits.value,
                         static_cast<std::uint32_t>(tiles));
  }
  // Enough maps for every lane to sum a few columns, so that waiting for each other at the end costs little.
  constexpr std::int64_t kRounds = 4;
  const std::int64_t lanes = layout.blocks << layout.shift;
  const std::int64_t maps = std::clamp<std::int64_t>(kRounds * kMeasureThreads / lanes, 1, kMostMaps);
  launch_blocks(dual_measure_kernel<Type, Access>, checked_blocks(format::ceil_div(layout.samples, maps)),
                kMeasureThreads, *job.stream, access, buffer, spec.bits.value, static_cast<std::uint32_t>(maps));
}

/// Maps that one thread block measures and codes; 0 if they do not fit, or channels lie last. A multiple of them begins
/// at a multiple of eight elements.
std::int64_t fused_maps(const format::DualLayout& layout, std::int64_t element_bytes) {
  constexpr std::int64_t kElems = 4096;  // for several thread blocks on a multiprocessor
  const std::int64_t unit = kChunk / std::gcd(layout.positions, std::int64_t{kChunk});
  if (layout.channels > 1 || unit * layout.positions * element_bytes > static_cast<std::int64_t>(kMostSharedBytes))
    return 0;
  const std::int64_t units = std::clamp<std::int64_t>(kElems / (unit * layout.positions), 1, kMostMaps / unit);
  return units * unit;
}

/// Every place in a map is computed in 32 bits.
void check_maps(const format::DualLayout& layout) {
  constexpr std::int64_t kMost = 0x7fffffff;
  if (layout.positions <= kMost) return;
  throw Error(ErrorCode::invalid_view, "cuda: dual: maps of " + std::to_string(layout.positions) +
                                           " positions (allowed: up to " + std::to_string(kMost) + ")");
}

template <DType Type>
void encode_fused(const Dual& spec, const codec::EncodeJob& job, const DenseAccess<Storage<Type>>& access,
                  const DualBuffer& buffer, std::int64_t maps) {
  const auto bytes = static_cast<std::size_t>(maps * buffer.layout.positions) * sizeof(Storage<Type>);
  with_levels(buffer.layout, true, [&]<class Levels>() {
    if constexpr (Levels::kOneChannel) {
      launch_shared(dual_fused_kernel<Type, Levels>, checked_blocks(format::ceil_div(buffer.layout.samples, maps)),
                    kThreads, bytes, *job.stream, access, buffer, spec.bits.value, static_cast<std::uint32_t>(maps),
                    KernelSeed(job.seed), Padding(job.dst, job.sections));
    }
  });
}

}  // namespace

void encode(const Dual& spec, const codec::EncodeJob& job) {
  const DualBuffer buffer(spec, job.dst, job.sections, job.geometry.elems);
  check_maps(buffer.layout);
  with_float(job.src.dtype, [&]<DType Type>() {
    with_access<Storage<Type>>(job.src.data, job.src.order, true, [&]<class Access>(Access access) {
      if constexpr (Access::kDense) {
        const std::int64_t maps = fused_maps(buffer.layout, sizeof(Storage<Type>));
        if (maps != 0) return encode_fused<Type>(spec, job, access, buffer, maps);
      }
      measure<Type>(spec, job, access, buffer);
      with_levels(buffer.layout, Access::kDense, [&]<class Levels>() {
        if constexpr (Access::kDense || std::is_same_v<Levels, ByElement>) {
          launch(dual_encode_kernel<Type, Levels, Access>, format::ceil_div(job.geometry.elems, kTile), *job.stream,
                 access, buffer, spec.bits.value, KernelSeed(job.seed), Padding(job.dst, job.sections));
        }
      });
    });
  });
}

void decode(const Dual& spec, const codec::DecodeJob& job) {
  const DualBuffer buffer(spec, job.src, job.sections, job.geometry.elems);
  check_maps(buffer.layout);
  with_float(job.dst.dtype, [&]<DType Type>() {
    with_access<Storage<Type>>(job.dst.data, job.dst.order, true, [&]<class Access>(Access access) {
      with_levels(buffer.layout, Access::kDense, [&]<class Levels>() {
        if constexpr (Access::kDense || std::is_same_v<Levels, ByElement>) {
          launch(dual_decode_kernel<Type, Levels, Access>, format::ceil_div(job.geometry.elems, kTile), *job.stream,
                 buffer, access, spec.bits.value, spec.rounding == Rounding::dithered, KernelSeed(job.seed));
        }
      });
    });
  });
}

}  // namespace actzip::cuda
