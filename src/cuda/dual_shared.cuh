// `dual` through shared memory: for maps of any width that lie one behind the other and are small enough. They are read
// once, in the order of memory; a lane then measures a block, and later codes chunks.
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
      if (at < count) loaded[j] = src.load(first + at, count_from(at, count));
    }
#pragma unroll
    for (std::uint32_t j = 0; j < kChunksPerLane; ++j) {
      if (i + j * kStep < count) chunks[(i + j * kStep) / kChunk] = loaded[j];
    }
  }
}

/// Sum and extremes of a block whose first row begins at `row`.
template <DType Type>
[[nodiscard]] __device__ __forceinline__ BlockSums measure_block(const DualBuffer& buffer, const BlockPlace& place,
                                                                 const Storage<Type>* row) {
  float columns[kChunk] = {};
  BlockSums sums;
  for (std::uint32_t r = 0; r < place.rows; ++r, row += buffer.width) {
#pragma unroll
    for (int c = 0; c < kChunk; ++c) {
      if (c >= place.columns) break;
      const float x = widen_one<Type>(row[c]);
      columns[c] += x;
      sums.least = fminf(sums.least, x);
      sums.negated_most = fminf(sums.negated_most, -x);
    }
  }
  sums.sum = sum_of_neighbours(columns);
  return sums;
}

/// `Run` divides the width, so that as many neighbours lie in one block.
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

  load_shared<Type>(src, first, count, chunks);
  for (std::uint32_t m = threadIdx.x; m < own; m += kThreads) levels[m].clear();
  __syncthreads();
  for (std::uint32_t task = threadIdx.x; task < own * dst.blocks; task += kThreads) {
    const std::uint32_t map = dst.by_blocks(task);
    const std::uint32_t block = task - map * dst.blocks;
    const BlockPlace place(dst, block);
    const auto* const elements = reinterpret_cast<const Storage<Type>*>(bytes);
    const BlockSums sums =
        measure_block<Type>(dst, place, elements + map * dst.positions + place.row * dst.width + place.column);
    const float average = math::dual_average(sums.sum, static_cast<float>(place.rows * place.columns));
    averages[task] = average;
    store_average(dst, dst.average_index(first_map + map, block, 0), average);
    atomicMin(&levels[map].least, order_key(math::dual_residual(sums.least, average)));
    atomicMin(&levels[map].negated_most, order_key(-math::dual_residual(-sums.negated_most, average)));
  }
  __syncthreads();
  for (std::uint32_t m = threadIdx.x; m < own; m += kThreads) levels[m].finish(dst, first_map + m, bits);
  __syncthreads();
  const math::HashKey key = seed.key();
  for (std::uint32_t i = threadIdx.x * kChunk; i < count; i += kThreads * kChunk) {
    std::uint32_t map = dst.by_positions(i);
    const std::uint32_t position = i - map * dst.positions;
    std::uint32_t line = dst.by_width(position);
    std::uint32_t column = position - line * dst.width;
    ChunkGroups groups;
#pragma unroll
    for (int j = 0; j < kChunk; j += Run) {
      const std::uint32_t block = (line >> dst.shift) * dst.block_columns + (column >> dst.shift);
      const float average = averages[map * dst.blocks + block];
      const SharedLevels& level = levels[map];
#pragma unroll
      for (int k = j; k < j + Run; ++k) groups.set(k, average, level.min, level.inverse);
      column += Run;
      if (column < dst.width) continue;
      column = 0;
      if (++line < dst.height) continue;
      line = 0;
      map = min(map + 1, own - 1);  // behind the last map there is nothing; it is not looked at
    }
    encode_chunk<Type, Bits>(chunks[i / kChunk], dst, bits, key, first + i, count_from(i, count), groups);
  }
}

}  // namespace actzip::cuda
