// What the codec layer passes to a backend. Everything is validated, and every pointer is on the backend's device.
#pragma once

#include <cstddef>

#include "actzip/segment_plan.hpp"
#include "actzip/stream.hpp"
#include "actzip/types.hpp"
#include "format/element_order.hpp"
#include "format/geometry.hpp"
#include "math/segment_plan.hpp"

namespace actzip::codec {

/// Elements in memory order. `Pointer` is `const void*` or `void*`.
template <class Pointer>
struct ElementView {
  Pointer data;
  DType dtype;
  format::ElementOrder order;
};

struct EncodeJob {
  ElementView<const void*> src;
  format::Geometry geometry;
  format::Sections sections;
  std::byte* dst;                 ///< sections.total bytes; the backend writes all of them
  std::byte* workspace;           ///< `index`: the overflow word
  const std::byte* segment_bits;  ///< the bits that each segment asks for, if sections.has_segment_bits()
  Seed seed;
  const Stream* stream;
};

struct DecodeJob {
  const std::byte* src;
  ElementView<void*> dst;
  format::Geometry geometry;
  format::Sections sections;
  Seed seed;
  const Stream* stream;
};

/// Weighs the equal segments of a dense run of floating elements.
struct WeighJob {
  const void* src;
  DType dtype;
  std::int64_t count;
  std::int64_t segment_elems;
  const float* factors;  ///< null: a weight is the root of the energy
  float* weights;
  const Stream* stream;
};

struct SegmentPlanJob {
  const float* weights;
  std::int64_t count;
  std::int64_t total_bits;
  math::BitSteps steps;
  std::byte* table;
  SegmentSummary* summary;  ///< may be null
  const Stream* stream;
};

}  // namespace actzip::codec
