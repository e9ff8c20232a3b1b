// Segments with bits of their own, as kernels see them.
#pragma once

#include <cstdint>
#include <utility>

#include "codec/job.hpp"
#include "cuda/launch.cuh"
#include "dispatch.hpp"
#include "format/segment_bits.hpp"

namespace actzip::cuda {

/// Calls body.operator()<Width>() on the device: with `Bits` if that is a width, otherwise with `own`, which is 1 to
/// Most. For any other `own` it calls nothing.
template <int Bits, int Most, class Body>
__device__ __forceinline__ void with_width(int own, Body&& body) {
  if constexpr (Bits != kRunTimeBits) {
    body.template operator()<Bits>();
  } else {
    [&]<int... Below>(std::integer_sequence<int, Below...>) {
      (void)((own == Below + 1 && (body.template operator()<Below + 1>(), true)) || ...);
    }(std::make_integer_sequence<int, Most>{});
  }
}

/// The codes of one segment, or those from a tile on.
struct CodeRun {
  std::byte* codes;
  std::int64_t bytes;
  int bits;
};

/// The codes of a tile.
struct TileRun {
  CodeRun run;
  bool whole;  ///< the tile lies in one segment
};

/// Number of blocks that write zeros behind the codes.
inline constexpr unsigned kZeroBlocks = 1024;

/// Where the codes of segments lie. Empty if all segments have the bits of the spec.
struct SegmentTable {
  const std::uint8_t* bits = nullptr;
  const std::uint32_t* starts = nullptr;
  std::byte* codes = nullptr;
  format::SegmentRuns runs;
  std::int64_t segment_elems = 0;  ///< including the absent ones of a ragged group

  [[nodiscard]] __device__ CodeRun run(std::int64_t segment) const {
    const format::SegmentRun found = format::stored_run(runs, starts[segment], bits[segment]);
    return {codes + 4 * found.start, 4 * runs.words(found.bits), found.bits};
  }

  /// The codes of the segment in which the tile begins, starting at the tile.
  [[nodiscard]] __device__ TileRun tile_run(std::int64_t tile) const {
    const std::int64_t first = tile * kTile;
    const bool narrow = ((first | segment_elems) >> 32) == 0;  // a 64-bit division takes five times as long
    const std::int64_t segment =
        narrow ? static_cast<std::uint32_t>(first) / static_cast<std::uint32_t>(segment_elems) : first / segment_elems;
    const std::int64_t inside = first - segment * segment_elems;
    CodeRun found = run(segment);
    found.codes += inside / 8 * found.bits;
    return {found, inside + kTile <= segment_elems};
  }

  /// Writes zeros behind the last segment's codes. Only the first blocks of the grid do it: there is mostly nothing to
  /// write, and finding that out takes two loads.
  __device__ void zero_rest() const {
    if (blockIdx.x >= kZeroBlocks) return;
    const CodeRun last = run(runs.segments - 1);
    auto* const words = reinterpret_cast<std::uint32_t*>(codes);
    const std::int64_t used = (last.codes + last.bytes - codes) / 4;
    const std::int64_t step = min(gridDim.x, kZeroBlocks) * kThreads;
    for (std::int64_t i = used + blockIdx.x * kThreads + threadIdx.x; i < runs.capacity; i += step) words[i] = 0;
  }
};

template <class Spec, class Job>
SegmentTable segment_table(const Spec& spec, const Job& job, const std::byte* data) {
  if (!job.sections.has_segment_bits()) return {};
  return {reinterpret_cast<const std::uint8_t*>(data + job.sections.table),
          reinterpret_cast<const std::uint32_t*>(data + job.sections.starts),
          const_cast<std::byte*>(data + job.sections.codes), format::segment_runs(spec, job.geometry, job.sections),
          job.geometry.segment_groups * job.geometry.group};
}

/// Writes the sections of widths and starts from the bits that the job's segments ask for, and zeros between the codes
/// of two segments where neither uses the room.
void place_segments(const SegmentTable& table, const codec::EncodeJob& job);

}  // namespace actzip::cuda
