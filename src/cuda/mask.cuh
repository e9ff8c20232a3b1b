// Planes of one bit per element, used by `mask` and by `rotated` with a mask plane.
#pragma once

#include <cstddef>
#include <cstdint>

#include "actzip/spec.hpp"
#include "codec/job.hpp"

namespace actzip::cuda {

/// The bits of the elements in runs, one run for each segment.
struct BitPlane {
  const std::byte* data;
  std::int64_t segment_elems;
  std::int64_t segment_bytes;
};

/// Writes the values of `spec` that the bits of `plane` select; for booleans and bytes these are 0 and 1.
void decode_bits(const BitPlane& plane, const Mask& spec, const codec::ElementView<void*>& dst, const Stream& stream);

}  // namespace actzip::cuda
