// `mask` on CUDA: a lane turns eight elements into one byte and back.
#include "cuda/mask.cuh"

#include <cstdint>

#include "cuda/backend.hpp"
#include "cuda/chunk.cuh"
#include "cuda/launch.cuh"
#include "cuda/values.cuh"
#include "dispatch.hpp"
#include "math/mask.hpp"

namespace actzip::cuda {
namespace {

struct Interval {
  float lo;
  float hi;
};

/// Bit i: whether byte i is not 0.
__device__ __forceinline__ std::uint32_t nonzero_bytes(const Chunk<std::uint8_t>& chunk) {
  // The product moves the lowest bits of four bytes side by side into bits 24 to 27.
  constexpr std::uint32_t kGather = 0x01020408U;
  const std::uint32_t low = (__vsetne4(chunk.w[0], 0U) * kGather) >> 24;
  const std::uint32_t high = (__vsetne4(chunk.w[1], 0U) * kGather) >> 24;
  return (low & 0xfU) | (high & 0xfU) << 4;
}

struct ByteBits {
  using Storage = std::uint8_t;
  __device__ static std::uint32_t of(const Chunk<Storage>& chunk, Interval /*interval*/) { return nonzero_bytes(chunk); }
};

template <DType Type>
struct FloatBits {
  using Storage = cuda::Storage<Type>;
  __device__ static std::uint32_t of(const Chunk<Storage>& chunk, Interval interval) {
    std::uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      bits |= math::mask_bit(widen<Type>(chunk, i), interval.lo, interval.hi) ? 1U << i : 0U;
    }
    return bits;
  }
};

template <class Source, class Access>
__global__ void __launch_bounds__(kThreads)
    mask_encode_kernel(Access src, std::byte* dst, std::int64_t elems, Interval interval, Padding padding) {
  padding.zero();
  const auto [tile, lane] = place();
  const std::int64_t bytes = format::ceil_div(elems, 32) * 4;
  Chunk<typename Source::Storage> chunks[kChunksPerLane];
  int counts[kChunksPerLane];
#pragma unroll
  for (int j = 0; j < kChunksPerLane; ++j) {
    const std::int64_t first = tile * kTile + (j * kWarp + lane) * kChunk;
    counts[j] = static_cast<int>(min(max(elems - first, std::int64_t{0}), std::int64_t{kChunk}));
    chunks[j] = src.load(first, counts[j]);
  }
#pragma unroll
  for (int j = 0; j < kChunksPerLane; ++j) {
    const std::int64_t at = tile * (kTile / 8) + j * kWarp + lane;
    const std::uint32_t present = (1U << counts[j]) - 1U;
    if (at < bytes) dst[at] = static_cast<std::byte>(Source::of(chunks[j], interval) & present);
  }
}

/// Two elements of the target type.
template <class T>
struct TwoValues {
  T off;
  T on;
};

template <class T, class Access>
__global__ void __launch_bounds__(kThreads)
    mask_decode_kernel(BitPlane src, Access dst, std::int64_t elems, TwoValues<T> values) {
  const auto [tile, lane] = place();
  std::uint32_t bits[kChunksPerLane];
  int counts[kChunksPerLane];
#pragma unroll
  for (int j = 0; j < kChunksPerLane; ++j) {
    const std::int64_t first = tile * kTile + (j * kWarp + lane) * kChunk;
    counts[j] = static_cast<int>(min(max(elems - first, std::int64_t{0}), std::int64_t{kChunk}));
    bits[j] = 0;
    if (src.segment_elems == elems) {
      if (counts[j] > 0) bits[j] = static_cast<std::uint32_t>(src.data[first / 8]);
    } else {
      for (int i = 0; i < counts[j]; ++i) {
        const std::int64_t segment = (first + i) / src.segment_elems;
        const std::int64_t inside = first + i - segment * src.segment_elems;
        const auto byte = static_cast<std::uint32_t>(src.data[segment * src.segment_bytes + inside / 8]);
        bits[j] |= ((byte >> (inside % 8)) & 1U) << i;
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kChunksPerLane; ++j) {
    if (counts[j] == 0) continue;
    Chunk<T> chunk = {};
#pragma unroll
    for (int i = 0; i < kChunk; ++i) chunk.set(i, ((bits[j] >> i) & 1U) != 0 ? values.on : values.off);
    dst.store(tile * kTile + (j * kWarp + lane) * kChunk, counts[j], chunk);
  }
}

template <class T>
void decode_to(const BitPlane& plane, TwoValues<T> values, const codec::Elements<void*>& dst, const Stream& stream) {
  with_access<T>(dst.data, dst.order, true, [&](auto access) {
    launch(mask_decode_kernel<T, decltype(access)>, format::ceil_div(dst.order.elems, kTile), stream, plane, access,
           dst.order.elems, values);
  });
}

template <class Source>
void encode_from(const Mask& spec, const codec::EncodeJob& job) {
  with_access<typename Source::Storage>(job.src.data, job.src.order, true, [&](auto access) {
    launch(mask_encode_kernel<Source, decltype(access)>, format::ceil_div(job.geometry.elems, kTile), *job.stream, access,
           job.dst, job.geometry.elems, Interval{spec.lo, spec.hi}, Padding(job.dst, job.sections));
  });
}

}  // namespace

void decode_bits(const BitPlane& plane, const Mask& spec, const codec::Elements<void*>& dst, const Stream& stream) {
  if (dtype_bytes(dst.dtype) == 1) return decode_to<std::uint8_t>(plane, {0, 1}, dst, stream);
  with_float(dst.dtype, [&]<DType Type>() {
    using Element = math::Element<Type>;
    decode_to<Storage<Type>>(plane, {Element::narrow(spec.off), Element::narrow(spec.on)}, dst, stream);
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
