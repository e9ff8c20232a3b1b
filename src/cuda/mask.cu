// `mask` on CUDA: a lane turns eight elements into one byte, or one byte into eight elements.
#include <cstdint>

#include "cuda/backend.hpp"
#include "cuda/chunk.cuh"
#include "cuda/launch.cuh"
#include "cuda/mask.cuh"
#include "cuda/values.cuh"
#include "dispatch.hpp"
#include "math/mask.hpp"

namespace actzip::cuda {
namespace {

/// Bit i is 1 where byte i is not 0.
__device__ __forceinline__ std::uint32_t nonzero_bytes(const Chunk<std::uint8_t>& chunk) {
  // The product moves the lowest bits of four bytes to bits 24 to 27.
  constexpr std::uint32_t kGather = 0x01020408U;
  const std::uint32_t low = (__vsetne4(chunk.w[0], 0U) * kGather) >> 24;
  const std::uint32_t high = (__vsetne4(chunk.w[1], 0U) * kGather) >> 24;
  return (low & 0xfU) | (high & 0xfU) << 4;
}

struct ByteBits {
  using Storage = std::uint8_t;
  __device__ static std::uint32_t of(const Chunk<Storage>& chunk, const math::MaskLimits& /*limits*/) {
    return nonzero_bytes(chunk);
  }
};

template <DType Type>
struct FloatBits {
  using Storage = cuda::Storage<Type>;
  __device__ static std::uint32_t of(const Chunk<Storage>& chunk, const math::MaskLimits& limits) {
    std::uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      bits |= math::mask_bit(widen<Type>(chunk, i), limits) ? 1U << i : 0U;
    }
    return bits;
  }
};

template <class Source, class Access>
__global__ void __launch_bounds__(kThreads)
    mask_encode_kernel(const __grid_constant__ Access src, std::byte* dst, std::int64_t elems,
                       const __grid_constant__ math::MaskLimits limits, const __grid_constant__ Padding padding) {
  padding.zero();
  on_tile(format::ceil_div(elems, kTile), [&](std::int64_t tile, int lane) {
    const std::int64_t bytes = format::ceil_div(elems, 32) * 4;
    Chunk<typename Source::Storage> chunks[kChunksPerLane];
    int counts[kChunksPerLane];
#pragma unroll
    for (int j = 0; j < kChunksPerLane; ++j) {
      const std::int64_t first = tile * kTile + (j * kWarp + lane) * kChunk;
      counts[j] = count_from(first, elems);
      chunks[j] = src.load(first, counts[j]);
    }
#pragma unroll
    for (int j = 0; j < kChunksPerLane; ++j) {
      const std::int64_t at = tile * (kTile / 8) + j * kWarp + lane;
      const std::uint32_t present = (1U << counts[j]) - 1U;
      if (at < bytes) dst[at] = static_cast<std::byte>(Source::of(chunks[j], limits) & present);
    }
  });
}

/// The bits of neighbouring elements that may lie in different runs.
__device__ __noinline__ std::uint32_t segmented_bits(BitPlane src, std::int64_t first, int count) {
  std::uint32_t bits = 0;
  for (int i = 0; i < count; ++i) {
    const std::int64_t segment = (first + i) / src.segment_elems;
    const std::int64_t inside = first + i - segment * src.segment_elems;
    const auto byte = static_cast<std::uint32_t>(src.data[segment * src.segment_bytes + inside / 8]);
    bits |= ((byte >> (inside % 8)) & 1U) << i;
  }
  return bits;
}

/// The two values of a mask, in the target type.
template <class T>
struct TwoValues {
  T off;
  T on;

  /// Eight elements, chosen by eight bits.
  [[nodiscard]] __device__ Chunk<T> chosen(std::uint32_t bits) const {
    Chunk<T> chunk = {};
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) chunk.set(i, (bits & (1U << i)) != 0 ? on : off);
    } else {
      // Each bit becomes a mask as wide as an element: it is moved to the element's lowest bit and multiplied.
      constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
      constexpr std::uint32_t kEach = sizeof(T) == 1 ? 0x01010101U : 0x00010001U;
      constexpr std::uint32_t kSpread = sizeof(T) == 1 ? 0x00204081U : 0x00008001U;
      const std::uint32_t off_word = off * kEach;
      const std::uint32_t difference = (off ^ on) * kEach;
#pragma unroll
      for (int k = 0; k < Chunk<T>::kWords; ++k) {
        const std::uint32_t own = (bits >> (kPerWord * k)) & ((1U << kPerWord) - 1U);
        const std::uint32_t lowest = (own * kSpread) & kEach;
        chunk.w[k] = off_word ^ (difference & (lowest * static_cast<T>(~T{0})));
      }
    }
    return chunk;
  }
};

/// A full tile of 4-byte elements. A lane stores four neighbours at a time, so that the lanes of a warp store
/// contiguous memory. It reads 32 bits, and shuffles hand out the pieces, since short reads between long writes are
/// slow.
__device__ __forceinline__ void decode_full_tile(const std::byte* bits, const DenseAccess<float>& dst,
                                                 std::int64_t tile, int lane, TwoValues<float> values) {
  constexpr int kRow = kWarp * 4;
  const std::uint32_t own = reinterpret_cast<const std::uint32_t*>(bits)[tile * (kTile / 32) + lane];
#pragma unroll
  for (int row = 0; row < kTile / kRow; ++row) {
    const std::uint32_t four = __shfl_sync(~0U, own, row * (kRow / 32) + lane / 8) >> (lane % 8 * 4);
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = math::bits_of((four & (1U << i)) != 0 ? values.on : values.off);
    dst.store_quad(tile * kTile + lane * 4, row * kRow, words);
  }
}

template <class T, class Access>
__global__ void __launch_bounds__(kThreads)
    mask_decode_kernel(BitPlane src, const __grid_constant__ Access dst, std::int64_t elems, TwoValues<T> values) {
  on_tile(format::ceil_div(elems, kTile), [&](std::int64_t tile, int lane) {
    if constexpr (Access::kDense && sizeof(T) == 4) {
      if (src.segment_elems == elems && (tile + 1) * kTile <= elems) {
        return decode_full_tile(src.data, dst, tile, lane, values);
      }
    }
    std::uint32_t bits[kChunksPerLane];
#pragma unroll
    for (int j = 0; j < kChunksPerLane; ++j) {
      const std::int64_t first = tile * kTile + (j * kWarp + lane) * kChunk;
      bits[j] = 0;
      if (first >= elems) continue;
      if (src.segment_elems == elems) {
        bits[j] = static_cast<std::uint32_t>(src.data[first >> 3]);
      } else {
        bits[j] = segmented_bits(src, first, count_from(first, elems));
      }
    }
#pragma unroll
    for (int j = 0; j < kChunksPerLane; ++j) {
      const std::int64_t first = tile * kTile + (j * kWarp + lane) * kChunk;
      store_tile_chunk(dst, tile, first, elems, values.chosen(bits[j]));
    }
  });
}

template <class T>
void decode_to(const BitPlane& plane, TwoValues<T> values, const codec::ElementView<void*>& dst, const Stream& stream) {
  with_access<T>(dst.data, dst.order, true, [&](auto access) {
    launch(mask_decode_kernel<T, decltype(access)>, format::ceil_div(dst.order.elems, kTile), stream, plane, access,
           dst.order.elems, values);
  });
}

template <class Source>
void encode_from(const Mask& spec, const codec::EncodeJob& job) {
  with_access<typename Source::Storage>(job.src.data, job.src.order, true, [&](auto access) {
    launch(mask_encode_kernel<Source, decltype(access)>, format::ceil_div(job.geometry.elems, kTile), *job.stream,
           access, job.dst, job.geometry.elems, math::mask_limits(spec), Padding(job.dst, job.sections));
  });
}

}  // namespace

void decode_bits(const BitPlane& plane, const Mask& spec, const codec::ElementView<void*>& dst, const Stream& stream) {
  if (dtype_bytes(dst.dtype) == 1) return decode_to<std::uint8_t>(plane, {0, 1}, dst, stream);
  with_float(dst.dtype, [&]<DType Type>() {
    using Element = math::Element<Type>;
    decode_to<Storage<Type>>(plane, {Element::round(spec.off), Element::round(spec.on)}, dst, stream);
  });
}

void encode(const Mask& spec, const codec::EncodeJob& job) {
  if (dtype_bytes(job.src.dtype) == 1) return encode_from<ByteBits>(spec, job);
  with_float(job.src.dtype, [&]<DType Type>() { encode_from<FloatBits<Type>>(spec, job); });
}

void decode(const Mask& spec, const codec::DecodeJob& job) {
  decode_bits({job.src, job.geometry.elems, 0}, spec, job.dst, *job.stream);
}

}  // namespace actzip::cuda
