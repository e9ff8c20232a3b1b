// `dual` through shared memory: for maps of any width that lie one behind the other and are small enough. They are read
// once, in the order of memory. A lane then measures a block, and turns its elements into steps where they lie; codes
// are made of these in the order of memory again.
#pragma once

#include <cstdint>

#include "cuda/dual_encode.cuh"

namespace actzip::cuda {

/// How the shared memory of a thread block is divided. Depth 1, blocks of 8 x 8.
struct SharedMaps {
  std::uint32_t maps;         ///< of a thread block; they begin at a multiple of eight elements
  std::uint32_t averages_at;  ///< bytes
  std::uint32_t levels_at;    ///< bytes
  std::uint32_t bytes;

  SharedMaps(const format::DualLayout& layout, std::int64_t maps, std::int64_t element_bytes)
      : maps(static_cast<std::uint32_t>(maps)),
        averages_at(static_cast<std::uint32_t>(format::ceil_div(maps * layout.positions * element_bytes, 16) * 16)),
        levels_at(averages_at + static_cast<std::uint32_t>(format::ceil_div(maps * layout.blocks, 4) * 16)),
        bytes(levels_at + this->maps * static_cast<std::uint32_t>(sizeof(SharedLevels))) {}
};

/// The elements of `count` from number `first` on, as they lie in memory.
template <DType Type>
__device__ __forceinline__ void load_shared(const DenseAccess<Storage<Type>>& src, std::int64_t first,
                                            std::uint32_t count, Chunk<Storage<Type>>* chunks) {
  using Elements = Chunk<Storage<Type>>;
  constexpr std::uint32_t kStep = kThreads * kChunk;
  for (std::uint32_t i = threadIdx.x * kChunk; i < count; i += kChunksPerLane * kStep) {
    Elements loaded[kChunksPerLane];
#pragma unroll
    for (std::uint32_t j = 0; j < kChunksPerLane; ++j) {
      const std::uint32_t at = i + j * kStep;
      if (at < count) loaded[j] = src.load(first + at, static_cast<int>(count - at));
    }
#pragma unroll
    for (std::uint32_t j = 0; j < kChunksPerLane; ++j) {
      if (i + j * kStep < count) chunks[(i + j * kStep) / kChunk] = loaded[j];
    }
  }
}

/// Neighbours that are read at once: 16 bytes of the widest type.
inline constexpr int kMostSharedRun = 4;

/// A block in shared memory. `Run` divides the width, so that as many neighbours are read at once.
template <DType Type, int Run>
class SharedBlock {
 public:
  using Elements = Chunk<Storage<Type>>;

  __device__ SharedBlock(const DualBuffer& buffer, const BlockPlace& place, Storage<Type>* map)
      : first_(map + place.row * buffer.width + place.column),
        width_(buffer.width),
        rows_(place.rows),
        columns_(static_cast<int>(place.columns)) {}

  /// Sum and extremes.
  [[nodiscard]] __device__ BlockSums measure() const {
    float columns[kChunk] = {};
    NeighbourExtremes<Type> extremes;
#pragma unroll 2
    for (std::uint32_t r = 0; r < rows_; ++r) {
      const Elements row = load(r);
      extremes.take(row);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) columns[i] += widen<Type>(row, i);
    }
    BlockSums sums;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i >= columns_) columns[i] = 0.0F;
      sums.least = fminf(sums.least, extremes.least(i));
      sums.negated_most = fminf(sums.negated_most, -extremes.most(i));
    }
    sums.sum = sum_of_neighbours(columns);
    return sums;
  }

  /// Puts steps in the place of the elements.
  __device__ void quantize(float average, const SharedLevels& levels) const {
    const math::AffineGroup group{.min = levels.min, .inverse = levels.inverse};
    const bool is_void = math::is_nan(levels.min);  // what cannot be represented has codes 0
#pragma unroll 2
    for (std::uint32_t r = 0; r < rows_; ++r) {
      const Elements row = load(r);
      Elements steps = {};
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        const std::uint32_t own = math::affine_steps<true>(widen<Type>(row, i) - average, group);
        if constexpr (Type == DType::f32) {
          steps.w[i] = own;
        } else {
          steps.w[i / 2] = i % 2 == 0 ? own : __byte_perm(steps.w[i / 2], own, 0x5410);
        }
      }
      store(r, is_void ? Elements{} : steps);
    }
  }

 private:
  static constexpr int kBytes = Run * static_cast<int>(sizeof(Storage<Type>));
  using Piece = std::conditional_t<
      kBytes == 16, uint4,
      std::conditional_t<kBytes == 8, uint2, std::conditional_t<kBytes == 4, std::uint32_t, std::uint16_t>>>;

  /// A row; columns that do not exist repeat the first ones, which changes no extremes.
  [[nodiscard]] __device__ Elements load(std::uint32_t r) const {
    Elements row = {};
#pragma unroll
    for (int i = 0; i < kChunk; i += Run) {
      const Piece piece = *reinterpret_cast<const Piece*>(first_ + r * width_ + (i < columns_ ? i : 0));
      if constexpr (kBytes == 2) {
        row.set(i, piece);
      } else {
        *reinterpret_cast<Piece*>(&row.w[i * static_cast<int>(sizeof(Storage<Type>)) / 4]) = piece;
      }
    }
    return row;
  }

  __device__ void store(std::uint32_t r, const Elements& row) const {
#pragma unroll
    for (int i = 0; i < kChunk; i += Run) {
      if (i >= columns_) break;
      auto* const at = reinterpret_cast<Piece*>(first_ + r * width_ + i);
      if constexpr (kBytes == 2) {
        *at = row.get(i);
      } else {
        *at = *reinterpret_cast<const Piece*>(&row.w[i * static_cast<int>(sizeof(Storage<Type>)) / 4]);
      }
    }
  }

  Storage<Type>* first_;
  std::uint32_t width_;
  std::uint32_t rows_;
  int columns_;
};

template <DType Type, int Bits, int Run>
__global__ void __launch_bounds__(kThreads, 8)
    dual_encode_shared_kernel(const __grid_constant__ DenseAccess<Storage<Type>> src,
                              const __grid_constant__ DualBuffer dst, int bits,
                              const __grid_constant__ SharedMaps shared, const __grid_constant__ KernelSeed seed,
                              const __grid_constant__ Padding padding) {
  extern __shared__ uint4 shared_memory[];
  auto* const bytes = reinterpret_cast<std::byte*>(shared_memory);
  auto* const chunks = reinterpret_cast<Chunk<Storage<Type>>*>(bytes);
  auto* const averages = reinterpret_cast<float*>(bytes + shared.averages_at);
  auto* const levels = reinterpret_cast<SharedLevels*>(bytes + shared.levels_at);
  padding.zero();
  zero_last_codes(dst, bits);
  const std::int64_t first_map = static_cast<std::int64_t>(blockIdx.x) * shared.maps;
  const std::int64_t first = first_map * dst.positions;
  const auto own = static_cast<std::uint32_t>(min(std::int64_t{shared.maps}, dst.layout.samples - first_map));
  const std::uint32_t count = own * dst.positions;
  /// body(task, map, block of the map, its elements) for the blocks of this thread.
  const auto on_blocks = [&](auto body) {
    for (std::uint32_t task = threadIdx.x; task < own * dst.blocks; task += kThreads) {
      const std::uint32_t map = dst.by_blocks(task);
      const std::uint32_t block = task - map * dst.blocks;
      const BlockPlace place(dst, block);
      body(task, map, place,
           SharedBlock<Type, Run>(dst, place, reinterpret_cast<Storage<Type>*>(bytes) + map * dst.positions));
    }
  };

  load_shared<Type>(src, first, count, chunks);
  for (std::uint32_t m = threadIdx.x; m < own; m += kThreads) levels[m].clear();
  __syncthreads();
  on_blocks([&](std::uint32_t task, std::uint32_t map, const BlockPlace& place, const SharedBlock<Type, Run>& block) {
    const BlockSums sums = block.measure();
    const float average = math::dual_average(sums.sum, static_cast<float>(place.rows * place.columns));
    averages[task] = average;
    store_average(dst, first_map * dst.blocks + task, average);
    atomicMin(&levels[map].least, order_key(math::dual_residual(sums.least, average)));
    atomicMin(&levels[map].negated_most, order_key(-math::dual_residual(-sums.negated_most, average)));
  });
  __syncthreads();
  for (std::uint32_t m = threadIdx.x; m < own; m += kThreads) levels[m].finish(dst, first_map + m, bits);
  __syncthreads();
  on_blocks([&](std::uint32_t task, std::uint32_t map, const BlockPlace&, const SharedBlock<Type, Run>& block) {
    block.quantize(averages[task], levels[map]);
  });
  __syncthreads();
  const math::HashKey key = seed.key();
  for (std::uint32_t i = threadIdx.x * kChunk; i < count; i += kThreads * kChunk) {
    const Chunk<Storage<Type>> steps = chunks[i / kChunk];
    const auto step = [&](int k) -> std::uint32_t {
      if constexpr (Type == DType::f32) return steps.w[k];
      return steps.w[k / 2] >> (k % 2 * 16);
    };
    if (i + kChunk <= count) {
      encode_steps<Bits>(dst, bits, key, first + i, kChunk, step);
    } else {
      encode_steps<Bits>(dst, bits, key, first + i, static_cast<int>(count - i), step);
    }
  }
}

}  // namespace actzip::cuda
