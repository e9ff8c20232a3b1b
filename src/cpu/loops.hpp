// The loops of one instruction set. The files in src/cpu/loops are built once for each level, each time into a
// namespace of its own. The rest of the backend reaches them only through the table declared here.
#pragma once

#include <cstdint>

#include "actzip/spec.hpp"
#include "codec/job.hpp"
#include "format/dual.hpp"
#include "math/hash.hpp"

namespace actzip::cpu {

/// Elements in a unit of work, for codecs without groups. Their codes are whole words at every width.
inline constexpr int kBlock = 1024;

/// Units [first, last) of a job: groups, or blocks of kBlock elements.
struct Range {
  std::int64_t first;
  std::int64_t last;
};

/// A loop processes a range of a job on the calling thread. Ranges of one job may run concurrently.
template <class Spec>
using EncodeLoop = void (*)(const Spec& spec, const codec::EncodeJob& job, math::HashKey key, Range range);
template <class Spec>
using DecodeLoop = void (*)(const Spec& spec, const codec::DecodeJob& job, math::HashKey key, Range range);

template <class Spec>
struct CodecLoops {
  EncodeLoop<Spec> encode;
  DecodeLoop<Spec> decode;
};

/// Writes the averages and statistics of samples [first, last) of a `dual` job, before its elements are coded. `room`
/// has measure_room() numbers.
using MeasureLoop = void (*)(const Dual& spec, const codec::EncodeJob& job, Range samples, float* room);

/// One pair for each codec; `loops.CodecLoops<Affine>::encode` encodes affine.
struct Loops : CodecLoops<Affine>,
               CodecLoops<Rotated>,
               CodecLoops<Mask>,
               CodecLoops<Index>,
               CodecLoops<Cast>,
               CodecLoops<Copy>,
               CodecLoops<Dual> {
  MeasureLoop measure;
};

/// Size of a measuring thread's scratch memory, in numbers: a sum, a least and a greatest element for each column of
/// each row of blocks, and two extremes for each map.
constexpr std::int64_t measure_room(const format::DualLayout& layout) {
  return (3 * layout.block_rows * layout.width + 2) * layout.channels;
}

namespace base {
extern const Loops kLoops;
}
namespace avx2 {
extern const Loops kLoops;
}
namespace avx512 {
extern const Loops kLoops;
}

}  // namespace actzip::cpu
