// Encodes `dual` on CUDA. Maps in blocks of 8 are measured and coded by one launch if they fit the kernels of
// dual_blocks.cuh or dual_shared.cuh. Other maps take two launches: one measures (dual_measure.cuh), one codes.
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "cuda/backend.hpp"
#include "cuda/dual_blocks.cuh"
#include "cuda/dual_decode.cuh"
#include "cuda/dual_launch.cuh"
#include "cuda/dual_shared.cuh"
#include "cuda/launch.cuh"
#include "dispatch.hpp"

namespace actzip::cuda {
namespace {

/// Encodes any maps, after they have been measured.
template <DType Type, class Access>
__global__ void __launch_bounds__(kThreads, 8)
    dual_encode_kernel(const __grid_constant__ Access src, const __grid_constant__ DualBuffer dst, int bits,
                       const __grid_constant__ KernelSeed seed, const __grid_constant__ Padding padding) {
  padding.zero();
  const std::int64_t elems = dst.layout.elems;
  const math::HashKey key = seed.key();
  on_tile(format::ceil_div(elems, kTile), [&](std::int64_t tile, std::uint32_t lane) {
    for (int j = 0; j < kChunksPerLane; ++j) {
      const std::int64_t first = tile * kTile + (j * kWarp + lane) * kChunk;
      const int count = count_from(first, elems);
      const ChunkStats stats = ByElement(dst, first).of(0, count);
      ChunkGroups groups;
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        const float step = stats.step[i];
        groups.set(i, stats.average[i], stats.min[i], step == 0.0F ? 0.0F : 1.0F / step);
      }
      encode_chunk<Type, kRunTimeBits>(src.load(first, count), dst, bits, key, first, count, groups);
    }
  });
}

/// Launches the kernel that writes averages and statistics of all maps.
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

/// The shape of thread blocks for the kernels of dual_blocks.cuh.
dim3 block_threads(std::int64_t lanes) {
  return {kThreads, static_cast<unsigned>(
                        std::clamp<std::int64_t>(format::ceil_div(lanes, kThreads), 1, kMostBlockThreads / kThreads))};
}

/// The launches that measure and code dense elements at once. Each returns false if it does not support the layout.
template <DType Type, int Bits>
struct DenseEncoding {
  const codec::EncodeJob& job;
  const DualBuffer& buffer;
  DenseAccess<Storage<Type>> access;
  int bits;

  [[nodiscard]] bool by_maps() const {
    const format::DualLayout& layout = buffer.layout;
    if (layout.channels > 1 || layout.depth > 1 || layout.blocks > kMostBlockThreads) return false;
    const std::int64_t maps = std::max<std::int64_t>(1, 2 * kThreads / layout.blocks);
    // Quads of 16-bit elements are too small to be read alone, unless the next row follows directly.
    const bool by_quads = sizeof(Storage<Type>) == 4 || layout.width == 4;
    return with_run<kChunk>(layout, [&]<int Run>() {
      if constexpr (Run == kChunk || (Run == 4 && Bits == 2)) {
        if (Run < kChunk && !by_quads) return false;
        launch_shared(dual_encode_maps_kernel<Type, Bits, Run>, checked_blocks(format::ceil_div(layout.samples, maps)),
                      block_threads(maps * layout.blocks), static_cast<std::size_t>(maps) * sizeof(SharedRange),
                      *job.stream, access, buffer, bits, MapLanes(maps), KernelSeed(job.seed),
                      Padding(job.dst, job.sections));
        return true;
      } else {
        return false;
      }
    });
  }

  [[nodiscard]] bool by_channels() const {
    const format::DualLayout& layout = buffer.layout;
    constexpr std::int64_t kMostOfRow = 0x7fffffff;  // elements, counted in 32 bits
    if (layout.channels == 1 || layout.channels % kChunk != 0 || layout.width * layout.channels > kMostOfRow) {
      return false;
    }
    // Lanes along the channels read neighbours, so there are always a few of them, and more if there are few blocks.
    constexpr int kFewestLog = 2;
    constexpr int kMostLog = 7;
    const std::int64_t chunks = layout.channels / kChunk;
    int lanes_log = kFewestLog;
    while (lanes_log < kMostLog && chunks >> lanes_log > 1 && layout.blocks << lanes_log < kThreads) ++lanes_log;
    const std::int64_t tiles = format::ceil_div(chunks, std::int64_t{1} << lanes_log);
    launch_shared(dual_encode_channels_kernel<Type, Bits>, checked_blocks(layout.samples * tiles),
                  block_threads(std::min<std::int64_t>(layout.blocks << lanes_log, kChannelThreads)),
                  sizeof(SharedRange) * kChunk << lanes_log, *job.stream, access, buffer, bits, lanes_log,
                  static_cast<std::uint32_t>(tiles), KernelSeed(job.seed), Padding(job.dst, job.sections));
    return true;
  }

  [[nodiscard]] bool through_shared_memory() const {
    const format::DualLayout& layout = buffer.layout;
    const std::int64_t unit = kChunk / std::gcd(layout.positions, std::int64_t{kChunk});
    const std::int64_t units = std::max<std::int64_t>(1, kThreads / (unit * layout.blocks));
    if (layout.channels > 1 || layout.depth > 1 || layout.positions > std::int64_t{kMostSharedBytes}) return false;
    const SharedMaps shared(layout, units * unit, sizeof(Storage<Type>));
    if (shared.bytes > kMostSharedBytes) return false;
    with_run<kMostSharedRun>(layout, [&]<int Run>() {
      launch_shared(dual_encode_shared_kernel<Type, Bits, Run>,
                    checked_blocks(format::ceil_div(layout.samples, units * unit)), kThreads, shared.bytes, *job.stream,
                    access, buffer, bits, shared, KernelSeed(job.seed), Padding(job.dst, job.sections));
    });
    return true;
  }
};

}  // namespace

void encode(const Dual& spec, const codec::EncodeJob& job) {
  const DualBuffer buffer(spec, job.dst, job.sections, job.geometry.elems);
  check_maps(buffer.layout);
  with_float(job.src.dtype, [&]<DType Type>() {
    with_access<Storage<Type>>(job.src.data, job.src.order, true, [&]<class Access>(Access access) {
      if constexpr (Access::kDense) {
        if (in_whole_blocks(buffer.layout) && with_width_of(spec, [&]<int Bits>() {
              const DenseEncoding<Type, Bits> encoding{job, buffer, access, spec.bits.value};
              return encoding.by_maps() || encoding.by_channels() || encoding.through_shared_memory();
            })) {
          return;
        }
      }
      measure<Type>(spec, job, access, buffer);
      launch(dual_encode_kernel<Type, Access>, format::ceil_div(job.geometry.elems, kTile), *job.stream, access, buffer,
             spec.bits.value, KernelSeed(job.seed), Padding(job.dst, job.sections));
    });
  });
}

}  // namespace actzip::cuda
