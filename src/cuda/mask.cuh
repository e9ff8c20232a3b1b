// Planes of one bit an element, which `mask` and `rotated` with a mask plane share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "actzip/spec.hpp"
#include "codec/job.hpp"

namespace actzip::cuda {

/// Bits of the elements in runs, one for each segment.
struct BitPlane {
  const std::byte* data;
  std::int64_t segment_elems;
  std::int64_t segment_bytes;
};

/// Writes the two values of `spec` (booleans and bytes: 0 and 1) by the bits of `plane`.
void decode_bits(const BitPlane& plane, const Mask& spec, const codec::ElementView<void*>& dst, const Stream& stream);

}  // namespace actzip::cuda
