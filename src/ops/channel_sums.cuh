// Sums over the rows of a tensor, two for each channel. A block processes tiles that begin at the same channel, so that
// each lane keeps its sums in registers. A second kernel adds up the sums of the blocks. The order of all sums depends
// only on the shape.
//
// So many registers leave few warps, whose loads cannot keep memory busy. A source may therefore have *stages*: parts of
// shared memory into which the next tiles are copied while a warp works on one.
#pragma once

#include <cuda_pipeline.h>

#include <cstdint>

#include "cuda/rotated_tile.cuh"
#include "ops/channel_access.cuh"

namespace actzip::cuda {

static_assert(kWarps == ops::ChannelSums::kWarps && kTile == ops::ChannelSums::kTile);

/// The sums of a lane: two for each of its numbers in a tile.
struct LaneSums {
  float first[kBlocks][kChunk] = {};
  float second[kBlocks][kChunk] = {};
};

/// Adds number `i` of a tile over the warps of a block, in order.
[[nodiscard]] __device__ __forceinline__ float sum_of_warps(const float (&sums)[kWarps][kTile], std::uint32_t i) {
  float sum = sums[0][i];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) sum += sums[w][i];
  return sum;
}

/// Writes the sums of a block whose tiles begin at channel `phase`: by channel if a tile has all channels, otherwise by
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

/// Copies 16 bytes to shared memory, while this thread goes on.
__device__ __forceinline__ void copy_ahead(uint4& to, const void* from) { __pipeline_memcpy_async(&to, from, 16); }

/// Shared memory of a block: first for stages, then for sums.
template <class Source>
union SumsMemory {
  float sums[kWarps][kTile];
};
template <class Source>
  requires requires { typename Source::Stage; }
union SumsMemory<Source> {
  float sums[kWarps][kTile];
  typename Source::Stage stages[kWarps][Source::kStages];
};

/// Adds the tiles of a warp: every `step`-th from `tile` on.
template <class Source>
__device__ __forceinline__ void add_tiles(const Source& source, LaneSums& sums, SumsMemory<Source>& memory,
                                          std::int64_t tile, std::int64_t step, std::int64_t tiles,
                                          std::uint32_t phase) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  if constexpr (requires { typename Source::Stage; }) {
    constexpr int kAhead = Source::kStages - 1;
    auto& stages = memory.stages[threadIdx.x / kWarp];
    const std::int64_t full = source.full_tiles();
    const auto copy = [&](std::int64_t next, int stage) {
      if (next < full) source.copy_ahead(stages[stage], next, lane);
      __pipeline_commit();
    };
#pragma unroll
    for (int i = 0; i < kAhead; ++i) copy(tile + i * step, i);
    for (int stage = 0; tile < full; tile += step, stage = stage == kAhead ? 0 : stage + 1) {
      copy(tile + kAhead * step, stage == 0 ? kAhead : stage - 1);
      __pipeline_wait_prior(kAhead);
      __syncwarp();
      source.add(sums, stages[stage], tile, lane);
      __syncwarp();  // the stage is written next
    }
  }
  for (; tile < tiles; tile += step) source.add(sums, tile, lane, phase);
}

template <class Source>
__global__ void __launch_bounds__(kThreads, Source::kBlocksOfMultiprocessor)
    channel_sums_kernel(const __grid_constant__ Source source, std::int64_t tiles, Channels channels, float* out) {
  __shared__ SumsMemory<Source> memory;
  const std::uint32_t phase = channels.of_tile(static_cast<std::int64_t>(blockIdx.x) * kTile);
  LaneSums sums;
  add_tiles(source, sums, memory, blockIdx.x + static_cast<std::int64_t>(threadIdx.x / kWarp) * gridDim.x,
            static_cast<std::int64_t>(gridDim.x) * kWarps, tiles, phase);
  const std::uint32_t width = min(channels.count(), static_cast<std::uint32_t>(kTile));
  float* const own = out + static_cast<std::int64_t>(blockIdx.x) * 2 * width;
  store_sums(sums.first, memory.sums, phase, channels.count(), own);
  store_sums(sums.second, memory.sums, phase, channels.count(), own + width);
}

/// Calls finish(channel, first, second) with the sums over all blocks. A thread block has 32 channels and as many rows.
inline constexpr int kFinishRows = 32;

template <class Finish>
__global__ void __launch_bounds__(kWarp* kFinishRows)
    finish_sums_kernel(const float* sums, std::uint32_t blocks, Channels channels,
                       const __grid_constant__ Finish finish) {
  __shared__ float shared[2][kFinishRows][kWarp + 1];
  const std::uint32_t count = channels.count();
  const std::uint32_t width = min(count, static_cast<std::uint32_t>(kTile));
  const std::uint32_t c = blockIdx.x * kWarp + threadIdx.x;
  float first = 0.0F;
  float second = 0.0F;
  for (std::uint32_t block = threadIdx.y; c < count && block < blocks; block += kFinishRows) {
    const std::uint32_t phase = channels.of_tile(static_cast<std::int64_t>(block) * kTile);
    const std::uint32_t place = count < kTile ? c : (c + count - phase) % count;
    if (place >= width) continue;
    first += sums[block * 2 * width + place];
    second += sums[block * 2 * width + width + place];
  }
  shared[0][threadIdx.y][threadIdx.x] = first;
  shared[1][threadIdx.y][threadIdx.x] = second;
  __syncthreads();
  if (threadIdx.y != 0 || c >= count) return;
  for (int row = 1; row < kFinishRows; ++row) {
    first += shared[0][row][threadIdx.x];
    second += shared[1][row][threadIdx.x];
  }
  finish(c, first, second);
}

/// Launches both kernels. `workspace` has plan.floats() numbers.
template <class Source, class Finish>
void sum_channels(const Source& source, const Finish& finish, const ops::ChannelSums& plan, float* workspace,
                  const Stream& stream) {
  const Channels channels(plan.channels);
  launch_blocks(channel_sums_kernel<Source>, plan.blocks, kThreads, stream, source, plan.tiles, channels, workspace);
  launch_grid(finish_sums_kernel<Finish>, dim3(static_cast<unsigned>(format::ceil_div(plan.channels, kWarp))),
              dim3(kWarp, kFinishRows), stream, static_cast<const float*>(workspace),
              static_cast<std::uint32_t>(plan.blocks), channels, finish);
}

}  // namespace actzip::cuda
