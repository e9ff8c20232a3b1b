// Tiles whose elements are no aligned run of memory pass through shared memory: views with gaps, and rows that begin
// anywhere. A warp then reads and writes memory in its order, one element for each lane, and computes the place of each
// element once. Chunks are taken from shared memory.
#pragma once

#include <cstdint>

#include "cuda/chunk.cuh"
#include "cuda/launch.cuh"
#include "format/geometry.hpp"

namespace actzip::cuda {

/// The elements of a tile. They follow each other, since only padding lies between its groups.
struct TileElements {
  std::int64_t first;
  std::uint32_t count;
};

[[nodiscard]] __device__ inline TileElements tile_elements(const format::Geometry& geometry, std::int64_t tile) {
  const std::int64_t groups = kTile / geometry.group;
  const std::int64_t begin = tile * groups;
  const std::int64_t end = min(begin + groups, geometry.groups());
  if (begin >= end) return {0, 0};
  const std::int64_t first = group_range_of(geometry, begin).first;
  const format::GroupRange last = group_range_of(geometry, end - 1);
  return {first, static_cast<std::uint32_t>(last.first + last.count - first)};
}

/// Shared memory for the elements of one tile. A word is left out behind every 32, so that the lanes of a warp, whose
/// chunks begin eight elements apart, use different banks.
template <class T>
class Stage {
  static constexpr std::uint32_t kOfWord = 4 / sizeof(T);
  static constexpr std::uint32_t kRow = kWarp * kOfWord;

 public:
  static constexpr std::uint32_t kElems = kTile + kChunk + (kTile + kChunk) / kRow * kOfWord;

  /// `memory` has kElems elements for each warp of the block.
  __device__ explicit Stage(T* memory) : data_(memory + threadIdx.x / kWarp * kElems) {}

  /// Element `i` of the tile. There is room for a chunk that begins with the tile's last element.
  [[nodiscard]] __device__ T& at(std::uint32_t i) const { return data_[i + i / kRow * kOfWord]; }

 private:
  T* data_;
};

inline constexpr std::uint32_t kStagedAtOnce = 8;  ///< elements that a lane loads before it uses the first

/// The elements of a tile, loaded from a view. All lanes make it.
template <class T>
class StagedSource {
 public:
  static constexpr bool kDense = false;

  __device__ StagedSource(const StridedAccess<T>& src, const TileElements& elements, Stage<T> stage)
      : stage_(stage), first_(elements.first) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    if (const T* const run = src.run(first_)) {
      for (std::uint32_t begin = lane; begin < elements.count; begin += kStagedAtOnce * kWarp) {
        T values[kStagedAtOnce];
#pragma unroll
        for (std::uint32_t k = 0; k < kStagedAtOnce; ++k) {
          const std::uint32_t i = begin + k * kWarp;
          values[k] = i < elements.count ? run[i] : T{};
        }
#pragma unroll
        for (std::uint32_t k = 0; k < kStagedAtOnce; ++k) stage_.at(begin + k * kWarp) = values[k];
      }
    } else {
      for (std::uint32_t i = lane; i < elements.count; i += kWarp) stage_.at(i) = src.at(first_ + i);
    }
    __syncwarp();
  }

  [[nodiscard]] __device__ Chunk<T> load(std::int64_t first, int count) const {
    Chunk<T> chunk = {};
    const std::uint32_t inside = count > 0 ? static_cast<std::uint32_t>(first - first_) : 0U;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const T value = stage_.at(inside + i);
      chunk.set(i, i < count ? value : T{});
    }
    return chunk;
  }

 private:
  Stage<T> stage_;
  std::int64_t first_;
};

/// Collects the elements of a tile and writes them to a view. All lanes make it, and call flush() at the end.
template <class T>
class StagedTarget {
 public:
  static constexpr bool kDense = false;

  __device__ StagedTarget(const TileElements& elements, Stage<T> stage) : stage_(stage), elements_(elements) {}

  __device__ void store(std::int64_t first, int count, const Chunk<T>& chunk) const {
    const auto inside = static_cast<std::uint32_t>(first - elements_.first);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i < count) stage_.at(inside + i) = chunk.get(i);
    }
  }

  __device__ void flush(const StridedAccess<T>& dst) const {
    __syncwarp();
    const std::uint32_t lane = threadIdx.x % kWarp;
    if (T* const run = dst.run(elements_.first)) {
#pragma unroll 4
      for (std::uint32_t i = lane; i < elements_.count; i += kWarp) run[i] = stage_.at(i);
    } else {
      for (std::uint32_t i = lane; i < elements_.count; i += kWarp) dst.set(elements_.first + i, stage_.at(i));
    }
  }

 private:
  Stage<T> stage_;
  TileElements elements_;
};

/// Calls encode(source) for a tile, with its elements staged unless they are dense. All lanes call it.
template <class T, class Access, class Body>
__device__ __forceinline__ void with_source(const Access& src, const format::Geometry& geometry, std::int64_t tile,
                                            Body&& encode) {
  if constexpr (Access::kDense) {
    encode(src);
  } else {
    __shared__ T memory[kWarps * Stage<T>::kElems];
    encode(StagedSource<T>(src, tile_elements(geometry, tile), Stage<T>(memory)));
  }
}

/// The same with a target for decode(target).
template <class T, class Access, class Body>
__device__ __forceinline__ void with_target(const Access& dst, const format::Geometry& geometry, std::int64_t tile,
                                            Body&& decode) {
  if constexpr (Access::kDense) {
    decode(dst);
  } else {
    __shared__ T memory[kWarps * Stage<T>::kElems];
    const StagedTarget<T> target(tile_elements(geometry, tile), Stage<T>(memory));
    decode(target);
    target.flush(dst);
  }
}

}  // namespace actzip::cuda
