// `index` on CUDA: a lane packs eight integers.
#include <cstdint>

#include "cuda/backend.hpp"
#include "cuda/chunk.cuh"
#include "cuda/launch.cuh"
#include "dispatch.hpp"

namespace actzip::cuda {
namespace {

/// Eight codes of `Bits` bits as 32-bit words, or as the lower bytes of one word.
template <int Bits>
struct PackedCodes {
  static constexpr int kWords = Bits < 4 ? 1 : Bits / 4;
  std::uint32_t w[kWords] = {};

  __device__ void set(int i, std::uint32_t code) { w[i * Bits / 32] |= code << (i * Bits % 32); }
  [[nodiscard]] __device__ std::uint32_t get(int i) const {
    const std::uint32_t shifted = w[i * Bits / 32] >> (i * Bits % 32);
    return shifted & (~0U >> (32 - Bits));
  }
};

template <class T, int Bits, class Access>
__global__ void __launch_bounds__(kThreads)
    index_encode_kernel(const __grid_constant__ Access src, std::byte* dst, std::int64_t elems, std::int64_t bound,
                        std::uint32_t* overflow, const __grid_constant__ Padding padding) {
  padding.zero();
  on_tile(format::ceil_div(elems, kTile), [&](std::int64_t tile, int lane) {
    const std::int64_t bytes = format::ceil_div(elems * Bits, 32) * 4;
    bool outside = false;
#pragma unroll
    for (int j = 0; j < kChunksPerLane; ++j) {
      const std::int64_t chunk_number = (tile * kChunksPerLane + j) * kWarp + lane;
      const std::int64_t room = bytes - chunk_number * Bits;
      if (room <= 0) continue;
      const std::int64_t first = chunk_number * kChunk;
      const Chunk<T> chunk = src.load(first, count_from(first, elems));
      PackedCodes<Bits> packed;
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        const auto value = static_cast<std::int64_t>(chunk.get(i));
        const bool inside = value >= 0 && value < bound;
        outside = outside || !inside;  // absent elements are 0, which is always inside
        packed.set(i, inside ? static_cast<std::uint32_t>(value) : 0U);
      }
      std::byte* at = dst + chunk_number * Bits;
#pragma unroll
      for (int k = 0; k < PackedCodes<Bits>::kWords; ++k) {
        constexpr int kBytes = Bits < 4 ? Bits : 4;
        store_codes<kBytes>(at + 4 * k, packed.w[k], room - 4 * k);
      }
    }
    if (outside) atomicOr(overflow, 1U);
  });
}

template <class T, int Bits, class Access>
__global__ void __launch_bounds__(kThreads)
    index_decode_kernel(const std::byte* src, const __grid_constant__ Access dst, std::int64_t elems) {
  on_tile(format::ceil_div(elems, kTile), [&](std::int64_t tile, int lane) {
    const std::int64_t bytes = format::ceil_div(elems * Bits, 32) * 4;
#pragma unroll
    for (int j = 0; j < kChunksPerLane; ++j) {
      const std::int64_t chunk_number = (tile * kChunksPerLane + j) * kWarp + lane;
      const std::int64_t first = chunk_number * kChunk;
      PackedCodes<Bits> packed;
      if (first < elems) {
#pragma unroll
        for (int k = 0; k < PackedCodes<Bits>::kWords; ++k) {
          constexpr int kBytes = Bits < 4 ? Bits : 4;
          packed.w[k] = static_cast<std::uint32_t>(
              load_codes<kBytes>(src + chunk_number * Bits + 4 * k, bytes - chunk_number * Bits - 4 * k));
        }
      }
      Chunk<T> chunk = {};
#pragma unroll
      for (int i = 0; i < kChunk; ++i) chunk.set(i, static_cast<T>(packed.get(i)));
      store_tile_chunk(dst, tile, first, elems, chunk);
    }
  });
}

template <class T>
void encode_from(const Index& spec, const codec::EncodeJob& job) {
  with_index_bits(index_bits(spec.bound), [&]<int Bits>() {
    with_access<T>(job.src.data, job.src.order, true, [&](auto access) {
      launch(index_encode_kernel<T, Bits, decltype(access)>, format::ceil_div(job.geometry.elems, kTile), *job.stream,
             access, job.dst, job.geometry.elems, spec.bound, reinterpret_cast<std::uint32_t*>(job.workspace),
             Padding(job.dst, job.sections));
    });
  });
}

template <class T>
void decode_to(const Index& spec, const codec::DecodeJob& job) {
  with_index_bits(index_bits(spec.bound), [&]<int Bits>() {
    with_access<T>(job.dst.data, job.dst.order, true, [&](auto access) {
      launch(index_decode_kernel<T, Bits, decltype(access)>, format::ceil_div(job.geometry.elems, kTile), *job.stream,
             job.src, access, job.geometry.elems);
    });
  });
}

}  // namespace

void encode(const Index& spec, const codec::EncodeJob& job) {
  switch (job.src.dtype) {
    case DType::u8: return encode_from<std::uint8_t>(spec, job);
    case DType::i16: return encode_from<std::int16_t>(spec, job);
    case DType::i32: return encode_from<std::int32_t>(spec, job);
    default: return encode_from<std::int64_t>(spec, job);
  }
}

void decode(const Index& spec, const codec::DecodeJob& job) {
  if (job.dst.dtype == DType::i32) return decode_to<std::int32_t>(spec, job);
  decode_to<std::int64_t>(spec, job);
}

}  // namespace actzip::cuda
