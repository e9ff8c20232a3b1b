// Launching kernels: the shape of grids, the seed as a kernel argument, and the one place where launches are checked.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <utility>

#include "actzip/error.hpp"
#include "actzip/stream.hpp"
#include "format/geometry.hpp"
#include "math/hash.hpp"

namespace actzip::cuda {

inline constexpr int kThreads = 128;
inline constexpr int kWarp = 32;
inline constexpr int kWarps = kThreads / kWarp;  ///< of a block
inline constexpr int kChunk = 8;                               ///< neighbouring elements held by one lane
inline constexpr int kChunksPerLane = 4;                       ///< chunks a lane holds at once: enough loads in flight
inline constexpr int kTile = kWarp * kChunk * kChunksPerLane;  ///< padded elements that one warp works on: 1,024

/// Number of tiles that the groups fill.
[[nodiscard]] ACTZIP_HD std::int64_t tile_count(const format::Geometry& geometry) {
  return format::ceil_div(geometry.groups() * geometry.group, kTile);
}

/// Calls body(tile, lane) with the tile of this warp, if there is one. A warp processes one tile and ends: kernels that
/// loop over tiles keep fewer loads in flight, and those limited by memory ran slower.
template <class Body>
__device__ __forceinline__ void on_tile(std::int64_t tiles, Body body) {
  const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (tile < tiles) body(tile, static_cast<int>(threadIdx.x % kWarp));
}

/// The seed as a kernel argument: its key if the host knows the seed, otherwise its address.
class KernelSeed {
 public:
  explicit KernelSeed(Seed seed) : key_(math::hash_key(seed.value())), address_(seed.address()) {}

  [[nodiscard]] __device__ math::HashKey key() const { return address_ == nullptr ? key_ : math::hash_key(*address_); }

 private:
  math::HashKey key_;
  const std::uint64_t* address_;
};

/// The bytes between the end of each section and the next one. The first warp of the grid writes zeros there.
struct Padding {
  static constexpr int kSections = 5;
  std::byte* buffer;
  std::int64_t first[kSections];
  std::int64_t last[kSections];

  Padding(std::byte* buffer, const format::Sections& s)
      : buffer(buffer),
        first{s.table + s.table_used, s.starts + s.starts_used, s.stats + s.stats_used, s.codes + s.codes_used,
              s.mask + s.mask_used},
        last{s.starts, s.stats, s.codes, s.mask, s.total} {}

  __device__ void zero() const {
    if (blockIdx.x != 0 || threadIdx.x >= 16) return;
    for (int section = 0; section < kSections; ++section) {
      const std::int64_t i = first[section] + threadIdx.x;
      if (i < last[section]) buffer[i] = std::byte{0};
    }
  }
};

/// Throws the Error for a refused launch: backend_unavailable if this machine cannot run the kernels, otherwise
/// cuda_failure.
[[noreturn]] inline void refuse(cudaError_t status) {
  (void)cudaGetLastError();  // otherwise the framework would find the error after a launch of its own
  const bool absent = status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver ||
                      status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDevice;
  throw Error(absent ? ErrorCode::backend_unavailable : ErrorCode::cuda_failure,
              std::string("cuda: launch refused: ") + cudaGetErrorString(status) +
                  (absent ? " (`actzip doctor` says what is missing)" : ""));
}

/// Launches `kernel` with dynamic shared memory. Throws Error: backend_unavailable, cuda_failure.
template <class... Parameters, class... Arguments>
void launch_grid_shared(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, std::size_t shared_bytes,
                        const Stream& stream, Arguments&&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.handle());
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
  if (status != cudaSuccess) refuse(status);
}

/// The same without dynamic shared memory.
template <class... Parameters, class... Arguments>
void launch_grid(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, const Stream& stream,
                 Arguments&&... arguments) {
  launch_grid_shared(kernel, blocks, threads, 0, stream, std::forward<Arguments>(arguments)...);
}

/// The same with a grid and blocks of one dimension.
template <class... Parameters, class... Arguments>
void launch_blocks(void (*kernel)(Parameters...), std::int64_t blocks, int threads, const Stream& stream,
                   Arguments&&... arguments) {
  launch_grid(kernel, dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)), stream,
              std::forward<Arguments>(arguments)...);
}

/// Dynamic shared memory that every device from sm_80 on has, besides a little static shared memory of the kernel.
inline constexpr std::size_t kMostSharedBytes = 98304;

/// Launches on `blocks` in one dimension, with dynamic shared memory up to kMostSharedBytes. If a launch needs more
/// than the default limit, the kernel's limit is always set to the maximum, so that concurrent launches with different
/// needs do not lower it for each other.
template <class... Parameters, class... Arguments>
void launch_shared(void (*kernel)(Parameters...), std::int64_t blocks, dim3 threads, std::size_t shared_bytes,
                   const Stream& stream, Arguments&&... arguments) {
  constexpr std::size_t kUnasked = 40960;  // 48 KiB less the static shared memory of kernels
  if (shared_bytes > kUnasked) {
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostSharedBytes));
    if (status != cudaSuccess) refuse(status);
  }
  launch_grid_shared(kernel, dim3(static_cast<unsigned>(blocks)), threads, shared_bytes, stream,
                     std::forward<Arguments>(arguments)...);
}

/// Returns `blocks` if a grid may have that many. Otherwise throws Error(invalid_view).
inline std::int64_t checked_blocks(std::int64_t blocks) {
  constexpr std::int64_t kMostBlocks = 0x7fffffff;
  if (blocks <= kMostBlocks) return blocks;
  throw Error(ErrorCode::invalid_view,
              "cuda: " + std::to_string(blocks) + " blocks of threads (allowed: " + std::to_string(kMostBlocks) + ")");
}

/// Launches `kernel` on enough blocks for `tiles` warps. Throws Error: invalid_view (too many), backend_unavailable,
/// cuda_failure.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), std::int64_t tiles, const Stream& stream, Arguments&&... arguments) {
  launch_blocks(kernel, checked_blocks(format::ceil_div(tiles, kThreads / kWarp)), kThreads, stream,
                std::forward<Arguments>(arguments)...);
}

}  // namespace actzip::cuda
