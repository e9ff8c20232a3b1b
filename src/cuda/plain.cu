// `cast` and `copy` on CUDA: elementwise, from any view to a run of bytes and back.
#include <cstdint>

#include "cuda/backend.hpp"
#include "cuda/chunk.cuh"
#include "cuda/launch.cuh"
#include "cuda/values.cuh"
#include "dispatch.hpp"

namespace actzip::cuda {
namespace {

/// The operation on a chunk: none.
template <class T>
struct Same {
  using From = T;
  using To = T;
  __device__ static Chunk<T> apply(const Chunk<T>& chunk) { return chunk; }
};

/// An IEEE conversion with canonical NaN.
template <DType Source, DType Target>
struct Convert {
  using From = Storage<Source>;
  using To = Storage<Target>;
  __device__ static Chunk<To> apply(const Chunk<From>& chunk) {
    Chunk<To> out = {};
#pragma unroll
    for (int i = 0; i < kChunk; ++i) out.set(i, math::Element<Target>::round(widen<Source>(chunk, i)));
    return out;
  }
};

template <class Operation, class Source, class Target>
__global__ void __launch_bounds__(kThreads)
    map_kernel(const __grid_constant__ Source src, const __grid_constant__ Target dst, std::int64_t elems,
               const __grid_constant__ Padding padding) {
  padding.zero();
  on_tile(format::ceil_div(elems, kTile), [&](std::int64_t tile, int lane) {
    Chunk<typename Operation::From> chunks[kChunksPerLane];
#pragma unroll
    for (int j = 0; j < kChunksPerLane; ++j) {
      const std::int64_t first = tile * kTile + (j * kWarp + lane) * kChunk;
      chunks[j] = src.load(first, count_from(first, elems));
    }
#pragma unroll
    for (int j = 0; j < kChunksPerLane; ++j) {
      const std::int64_t first = tile * kTile + (j * kWarp + lane) * kChunk;
      store_tile_chunk(dst, tile, first, elems, Operation::apply(chunks[j]));
    }
  });
}

template <class Operation>
void encode_by(const codec::EncodeJob& job) {
  using Bytes = DenseAccess<typename Operation::To>;
  with_access<typename Operation::From>(job.src.data, job.src.order, true, [&](auto access) {
    // The bytes that pad the run to 4 bytes are no elements either, so they are zeroed with the section's padding.
    format::Sections exact = job.sections;
    exact.codes_used = job.geometry.elems * static_cast<std::int64_t>(sizeof(typename Operation::To));
    launch(map_kernel<Operation, decltype(access), Bytes>, format::ceil_div(job.geometry.elems, kTile), *job.stream,
           access, Bytes(job.dst, job.src.order), job.geometry.elems, Padding(job.dst, exact));
  });
}

template <class Operation>
void decode_by(const codec::DecodeJob& job) {
  using Bytes = DenseAccess<typename Operation::From>;
  with_access<typename Operation::To>(job.dst.data, job.dst.order, true, [&](auto access) {
    launch(map_kernel<Operation, Bytes, decltype(access)>, format::ceil_div(job.geometry.elems, kTile), *job.stream,
           Bytes(job.src, job.dst.order), access, job.geometry.elems, Padding(nullptr, format::Sections{}));
  });
}

}  // namespace

void encode(const Copy& /*spec*/, const codec::EncodeJob& job) {
  with_bytes(dtype_bytes(job.src.dtype), [&]<class T>() { encode_by<Same<T>>(job); });
}

void decode(const Copy& /*spec*/, const codec::DecodeJob& job) {
  with_bytes(dtype_bytes(job.dst.dtype), [&]<class T>() { decode_by<Same<T>>(job); });
}

void encode(const Cast& spec, const codec::EncodeJob& job) {
  with_float(job.src.dtype, [&]<DType Type>() {
    if (spec.to == DType::bf16) return encode_by<Convert<Type, DType::bf16>>(job);
    encode_by<Convert<Type, DType::f16>>(job);
  });
}

void decode(const Cast& spec, const codec::DecodeJob& job) {
  with_float(job.dst.dtype, [&]<DType Type>() {
    if (spec.to == DType::bf16) return decode_by<Convert<DType::bf16, Type>>(job);
    decode_by<Convert<DType::f16, Type>>(job);
  });
}

}  // namespace actzip::cuda
