// What the codec layer hands to a backend: everything is validated, every pointer is on the backend's device.
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
  std::byte* dst;                 ///< sections.total bytes, all of which the backend writes
  std::byte* workspace;           ///< `index`: the overflow word
  const std::byte* segment_bits;  ///< what each segment asks for, if sections.has_segment_bits()
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

/// Equal parts of a dense run of floating elements.
struct WeighJob {
  const void* src;
  DType dtype;
  std::int64_t count;
  std::int64_t segment_elems;
  const float* factors;  ///< null: all 1
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
