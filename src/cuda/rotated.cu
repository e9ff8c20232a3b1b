// `rotated` on CUDA: chooses the kernel for the type, bits and view.
#include <cstdint>

#include "cuda/backend.hpp"
#include "cuda/mask.cuh"
#include "cuda/rotated_kernels.cuh"
#include "dispatch.hpp"

namespace actzip::cuda {
namespace {

/// Calls body.operator()<Type, Bits, Group>(access). For dense views Group is the spec's group, and kernels are built
/// for it. For other views it is 0, and kernels read the group from the buffer.
template <class View, class Job, class Body>
void with_rotated(const Rotated& spec, const View& view, const Job& job, Body&& body) {
  with_float(view.dtype, [&]<DType Type>() {
    with_bits(spec, job.sections.has_segment_bits(), [&]<int Bits>() {
      with_access<Storage<Type>>(view.data, view.order, job.geometry.flat(), [&](auto access) {
        if constexpr (!decltype(access)::kDense) {
          body.template operator()<Type, Bits, 0>(access);
        } else if (job.geometry.group == 128) {
          body.template operator()<Type, Bits, 128>(access);
        } else {
          body.template operator()<Type, Bits, 256>(access);
        }
      });
    });
  });
}

}  // namespace

void encode(const Rotated& spec, const codec::EncodeJob& job) {
  const RotatedBuffer buffer = rotated_buffer(spec, job, job.dst);
  if (job.sections.has_segment_bits()) place_segments(buffer.table, job);
  with_rotated(spec, job.src, job, [&]<DType Type, int Bits, int Group>(auto access) {
    launch(rotated_encode_kernel<Type, Bits, Group, decltype(access)>, tile_count(job.geometry), *job.stream, access,
           buffer, KernelSeed(job.seed), Padding(job.dst, job.sections));
  });
}

void decode(const Rotated& spec, const codec::DecodeJob& job) {
  if (job.dst.dtype == DType::boolean) {
    return decode_bits({job.src + job.sections.mask, job.geometry.segment_elems, job.sections.mask_words * 4}, Mask{},
                       job.dst, *job.stream);
  }
  with_rotated(spec, job.dst, job, [&]<DType Type, int Bits, int Group>(auto access) {
    launch(rotated_decode_kernel<Type, Bits, Group, decltype(access)>, tile_count(job.geometry), *job.stream,
           rotated_buffer(spec, job, job.src), access, KernelSeed(job.seed));
  });
}

}  // namespace actzip::cuda
