// What the kernels of `affine` need to know of an encoded buffer, and where the parts of a tile lie in it.
#pragma once

#include <cstdint>

#include "cuda/chunk.cuh"
#include "cuda/launch.cuh"
#include "cuda/segment_bits.cuh"

namespace actzip::cuda {

struct AffineBuffer {
  std::byte* stats_section;
  std::byte* codes;
  std::int64_t segment_bytes;  ///< of one segment's codes
  SegmentTable table;          ///< for kRunTimeBits
  format::Geometry geometry;
  std::int64_t tiles;
  StatsType stats;
  float floor;
};

template <class Job>
AffineBuffer affine_buffer(const Affine& spec, const Job& job, const std::byte* data) {
  const format::Geometry geometry = job.sections.has_segment_bits() ? job.geometry : format::flattened(job.geometry);
  const std::int64_t run = geometry.segments == 1 ? job.sections.codes_used : job.sections.code_words * 4;
  auto* const bytes = const_cast<std::byte*>(data);
  return {bytes + job.sections.stats,
          bytes + job.sections.codes,
          run,
          segment_table(spec, job, data),
          geometry,
          tile_count(geometry),
          spec.stats,
          spec.floor};
}

/// The codes of a segment, or of a full tile.
template <int Bits>
__device__ __forceinline__ CodeRun segment_run(const AffineBuffer& buffer, std::int64_t segment) {
  if constexpr (Bits == kRunTimeBits) return buffer.table.run(segment);
  return {buffer.codes + segment * buffer.segment_bytes, buffer.segment_bytes, Bits};
}
template <int Bits>
__device__ __forceinline__ TileRun tile_run(const AffineBuffer& buffer, std::int64_t tile) {
  if constexpr (Bits == kRunTimeBits) return buffer.table.tile_run(tile);
  return {{buffer.codes + tile * (kTile / 8 * Bits), 0, Bits}, true};
}

/// One chunk: its elements and its codes.
struct ChunkPlace {
  std::int64_t g;      ///< its group
  std::int64_t first;  ///< its first element
  int count;           ///< how many of its eight elements exist; may be negative
  std::byte* codes;
  std::int64_t room;  ///< bytes from `codes` to the end of the segment's run; not positive if there is no group
  int bits;
};

/// A tile that a dense tensor fills: all elements exist, and the formulas are short.
class FullTile {
 public:
  __device__ FullTile(const AffineBuffer& buffer, const CodeRun& run, std::int64_t tile)
      : run_(run), tile_(tile) {
    shift_ = 31 - __clz(buffer.geometry.group);
  }

  [[nodiscard]] __device__ static constexpr bool exists() { return true; }

  /// `chunk` is its number in the tile.
  [[nodiscard]] __device__ ChunkPlace at(std::uint32_t chunk) const {
    const std::int64_t g = tile_ * (kTile >> shift_) + (chunk * kChunk >> shift_);
    return {g, tile_ * kTile + chunk * kChunk, kChunk, run_.codes + chunk * run_.bits, run_.bits, run_.bits};
  }

 private:
  CodeRun run_;
  std::int64_t tile_;
  int shift_;
};

/// The group that a lane works on in any other tile. Its place is computed once, since that takes divisions.
template <int Bits>
class LaneGroup {
 public:
  __device__ LaneGroup(const AffineBuffer& buffer, std::int64_t tile, std::uint32_t lane)
      : mask_(buffer.geometry.group - 1) {
    const int shift = 31 - __clz(buffer.geometry.group);
    start_.g = tile * (kTile >> shift) + (lane * kLaneElems >> shift);
    start_.bits = Bits == kRunTimeBits ? 1 : Bits;
    if (!(exists_ = start_.g < buffer.geometry.groups())) return;
    const format::GroupRange range = group_range_of(buffer.geometry, start_.g);
    const CodeRun run = segment_run<Bits>(buffer, range.segment);
    const std::int64_t byte = (range.number * buffer.geometry.group >> 3) * run.bits;
    start_ = {start_.g, range.first, range.count, run.codes + byte, run.bytes - byte, run.bits};
  }

  [[nodiscard]] __device__ bool exists() const { return exists_; }

  /// `chunk` is a number in the tile, of a chunk in this group.
  [[nodiscard]] __device__ ChunkPlace at(std::uint32_t chunk) const {
    const int position = static_cast<int>(chunk) * kChunk & mask_;
    const int byte = (position >> 3) * start_.bits;
    return {start_.g,           start_.first + position, start_.count - position,
            start_.codes + byte, start_.room - byte,      start_.bits};
  }

 private:
  static constexpr int kLaneElems = kChunk * kChunksPerLane;
  ChunkPlace start_ = {};
  int mask_;
  bool exists_;
};

/// The chunks of a lane, all of one group: they are interleaved with those of the group's other lanes, so that every
/// load of a warp is one run of memory.
class LaneChunks {
 public:
  __device__ LaneChunks(int group, std::uint32_t lane)
      : lanes_(static_cast<std::uint32_t>(group) / (kChunk * kChunksPerLane)), sub_(lane & (lanes_ - 1)) {
    first_ = (lane - sub_) * kChunksPerLane + sub_;
  }

  [[nodiscard]] __device__ std::uint32_t lanes() const { return lanes_; }  ///< of the group: a power of two
  [[nodiscard]] __device__ bool is_first_lane() const { return sub_ == 0; }
  [[nodiscard]] __device__ std::uint32_t number(int j) const { return first_ + j * lanes_; }  ///< in the tile

 private:
  std::uint32_t lanes_;
  std::uint32_t sub_;
  std::uint32_t first_;
};

}  // namespace actzip::cuda
