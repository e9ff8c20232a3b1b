// Encodes `dual` through shared memory: for maps of any width that lie one behind the other and are small enough.
// Elements are read once, in memory order. A lane then measures a block and replaces its elements by steps, from which
// codes are made in memory order again.
#pragma once

#include <cstdint>

#include "cuda/dual_encode.cuh"

namespace actzip::cuda {

/// How the shared memory of a thread block is divided. Maps have a depth of 1 and blocks of 8 x 8.
struct SharedMaps {
  std::uint32_t maps;  ///< per thread block; they begin at a multiple of eight elements
  Divisor by_maps;
  std::uint32_t averages_at;  ///< bytes; one chunk behind the elements, since 16-bit rows are read too far
  std::uint32_t ranges_at;    ///< bytes
  std::uint32_t bytes;

  SharedMaps(const format::DualLayout& layout, std::int64_t maps, std::int64_t element_bytes)
      : maps(static_cast<std::uint32_t>(maps)),
        by_maps(maps),
        averages_at(
            static_cast<std::uint32_t>(format::ceil_div((maps * layout.positions + kChunk) * element_bytes, 16) * 16)),
        ranges_at(averages_at + static_cast<std::uint32_t>(format::ceil_div(maps * layout.blocks, 4) * 16)),
        bytes(ranges_at + this->maps * static_cast<std::uint32_t>(sizeof(SharedRange))) {}
};

/// Loads `count` elements from number `first` on, in memory order.
template <DType Type>
__device__ __forceinline__ void load_shared(const DenseAccess<Storage<Type>>& src, std::int64_t first,
                                            std::uint32_t count, Chunk<Storage<Type>>* chunks) {
  using MapChunk = Chunk<Storage<Type>>;
  constexpr std::uint32_t kStep = kThreads * kChunk;
  for (std::uint32_t i = threadIdx.x * kChunk; i < count; i += kChunksPerLane * kStep) {
    MapChunk loaded[kChunksPerLane];
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

/// Writes the codes of `count` elements from number `first` on, from the steps that have replaced them.
template <DType Type, int Bits>
__device__ __forceinline__ void encode_shared(const Chunk<Storage<Type>>* chunks, const DualBuffer& dst, int bits,
                                              math::HashKey key, std::int64_t first, std::uint32_t count) {
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

/// Most neighbours that are read at once: 16 bytes of the widest type.
inline constexpr int kMostSharedRun = 4;

/// A block in shared memory. `Run` divides the width; that many neighbours are read at once.
template <DType Type, int Run>
class SharedBlock {
 public:
  using MapChunk = Chunk<Storage<Type>>;
  /// Whether rows stay in registers between measuring and coding. With 32-bit rows only half as many threads would fit,
  /// which costs more than reading the rows again.
  static constexpr bool kStays = sizeof(Storage<Type>) == 2;

  /// `map` is the number of the map's first element.
  __device__ SharedBlock(const DualBuffer& buffer, const BlockPlace& place, Storage<Type>* elements, std::uint32_t map)
      : elements_(elements),
        first_(map + place.row * buffer.width + place.column),
        width_(buffer.width),
        rows_(place.rows),
        columns_(place.columns) {}

  __device__ void load(MapChunk (&rows)[kEdge]) const {
    for_each_row<kStays>(rows_, [&](std::uint32_t r) { rows[r] = load_row(first_ + r * width_); });
  }

  /// Sum and extremes of the rows, which are those of load() if rows stay in registers.
  [[nodiscard]] __device__ BlockSums measure(const MapChunk (&rows)[kEdge]) const {
    return measure_block<Type, kStays>(rows_, columns_, [&](std::uint32_t r) { return row(rows, r); });
  }

  [[nodiscard]] __device__ float count() const { return static_cast<float>(rows_ * columns_); }

  /// Replaces the elements by steps.
  __device__ void quantize(MapChunk (&rows)[kEdge], float average, const SharedRange& range) const {
    math::AffineGroup group{.min = range.min, .inverse = range.inverse};
    const bool is_void = math::is_nan(range.min);
    clear_void(rows, average, group);
    for_each_row<kStays>(rows_, [&](std::uint32_t r) {
      const MapChunk own = !kStays && is_void ? MapChunk{} : row(rows, r);
      std::uint32_t steps[kChunk];
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        steps[i] = math::affine_steps<true>(widen<Type>(own, i) - average, group);
      }
      store_steps(first_ + r * width_, steps);
    });
  }

 private:
  static constexpr int kBytes = Run * static_cast<int>(sizeof(Storage<Type>));
  using Piece = std::conditional_t<kBytes == 16, uint4, std::conditional_t<kBytes == 8, uint2, std::uint32_t>>;

  [[nodiscard]] __device__ MapChunk row(const MapChunk (&rows)[kEdge], std::uint32_t r) const {
    if constexpr (kStays) return rows[r];
    return load_row(first_ + r * width_);
  }

  /// Loads a row. Columns that do not exist repeat the first ones; or they are whatever lies behind, which is faster
  /// but only allowed where no other thread writes meanwhile.
  [[nodiscard]] __device__ MapChunk load_row(std::uint32_t first) const {
    MapChunk row;
    if constexpr (kBytes == 2) {
      const auto* const words = reinterpret_cast<const std::uint32_t*>(elements_) + first / 2;
#pragma unroll
      for (int k = 0; k < MapChunk::kWords; ++k) {
        row.w[k] = __funnelshift_r(words[k], words[k + 1], first % 2 * 16);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kChunk; i += Run) {
        const bool exists = kStays || i < static_cast<int>(columns_);
        *reinterpret_cast<Piece*>(&row.w[i * MapChunk::kWords / kChunk]) =
            *reinterpret_cast<const Piece*>(elements_ + first + (exists ? i : 0));
      }
    }
    return row;
  }

  /// Stores the lower bits of steps, as many as an element has.
  __device__ void store_steps(std::uint32_t first, const std::uint32_t (&steps)[kChunk]) const {
    if constexpr (kBytes == 2) {
#pragma unroll
      for (std::uint32_t i = 0; i < kEdge; ++i) {
        if (i < columns_) elements_[first + i] = static_cast<std::uint16_t>(steps[i]);
      }
    } else {
      MapChunk row;
#pragma unroll
      for (int k = 0; k < MapChunk::kWords; ++k) {
        if constexpr (Type == DType::f32) {
          row.w[k] = steps[k];
        } else {
          row.w[k] = __byte_perm(steps[2 * k], steps[2 * k + 1], 0x5410);
        }
        // Forces the value to exist here. Otherwise the compiler turns all of this into branches, one for each store.
        asm volatile("" ::"r"(row.w[k]));
      }
#pragma unroll
      for (std::uint32_t i = 0; i < kEdge; i += Run) {
        if (i >= columns_) continue;
        *reinterpret_cast<Piece*>(elements_ + first + i) =
            *reinterpret_cast<const Piece*>(&row.w[i * MapChunk::kWords / kChunk]);
      }
    }
  }

  Storage<Type>* elements_;
  std::uint32_t first_;
  std::uint32_t width_;
  std::uint32_t rows_;
  std::uint32_t columns_;
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
  auto* const ranges = reinterpret_cast<SharedRange*>(bytes + shared.ranges_at);
  padding.zero();
  zero_last_codes(dst, bits);
  const std::int64_t first_map = static_cast<std::int64_t>(blockIdx.x) * shared.maps;
  const std::int64_t first = first_map * dst.positions;
  const auto own = static_cast<std::uint32_t>(min(std::int64_t{shared.maps}, dst.layout.samples - first_map));
  const std::uint32_t count = own * dst.positions;
  using Block = SharedBlock<Type, Run>;
  /// Calls body(map, number among the averages, block) for this thread's block of the round, if it has one. Maps vary
  /// fastest, so that the lanes of a warp have blocks of one size, in maps that lie in different banks.
  const auto with_block = [&](std::uint32_t round, auto body) {
    const std::uint32_t task = round * kThreads + threadIdx.x;
    const std::uint32_t block = shared.by_maps(task);
    const std::uint32_t map = task - block * shared.maps;
    if (block >= dst.blocks || map >= own) return;
    body(map, map * dst.blocks + block,
         Block(dst, BlockPlace(dst, block), reinterpret_cast<Storage<Type>*>(bytes), map * dst.positions));
  };
  const std::uint32_t rounds = (shared.maps * dst.blocks + kThreads - 1) / kThreads;  // mostly one
  Chunk<Storage<Type>> rows[kEdge] = {};

  load_shared<Type>(src, first, count, chunks);
  for (std::uint32_t m = threadIdx.x; m < own; m += kThreads) ranges[m].clear();
  __syncthreads();
  for (std::uint32_t round = 0; round < rounds; ++round) {
    with_block(round, [&](std::uint32_t map, std::uint32_t number, const Block& block) {
      if constexpr (Block::kStays) block.load(rows);
      const BlockSums sums = block.measure(rows);
      const float average = math::dual_average(sums.sum, block.count());
      averages[number] = average;
      atomicMin(&ranges[map].least, order_key(math::dual_residual(sums.least, average)));
      atomicMin(&ranges[map].negated_most, order_key(-math::dual_residual(-sums.negated_most, average)));
    });
  }
  __syncthreads();
  for (std::uint32_t m = threadIdx.x; m < own; m += kThreads) ranges[m].finish(dst, first_map + m, bits);
  for (std::uint32_t i = threadIdx.x; i < own * dst.blocks; i += kThreads) {
    store_average(dst, first_map * dst.blocks + i, averages[i]);
  }
  __syncthreads();
  // Backwards, because the rows of the last round are still in registers.
  for (std::uint32_t round = rounds; round-- > 0;) {
    if (Block::kStays && round + 1 < rounds) {
      __syncthreads();
      with_block(round, [&](std::uint32_t, std::uint32_t, const Block& block) { block.load(rows); });
      __syncthreads();
    }
    with_block(round, [&](std::uint32_t map, std::uint32_t number, const Block& block) {
      block.quantize(rows, averages[number], ranges[map]);
    });
  }
  __syncthreads();
  encode_shared<Type, Bits>(chunks, dst, bits, seed.key(), first, count);
}

}  // namespace actzip::cuda
