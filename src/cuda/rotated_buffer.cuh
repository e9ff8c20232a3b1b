// What the kernels of `rotated` need to know of an encoded buffer, and where the parts of a tile lie in it.
#pragma once

#include <cstdint>

#include "cuda/chunk.cuh"
#include "cuda/rotated_tile.cuh"
#include "cuda/segment_bits.cuh"

namespace actzip::cuda {

struct RotatedBuffer {
  std::byte* stats_section;
  std::byte* codes;
  std::byte* mask;
  std::int64_t mask_segment_bytes;  ///< 0 if there is no mask plane
  SegmentTable table;               ///< for kRunTimeBits
  format::Geometry geometry;
  std::int64_t tiles;
  StatsType stats;

  [[nodiscard]] __device__ bool has_mask() const { return mask_segment_bytes != 0; }
};

template <class Job>
RotatedBuffer rotated_buffer(const Rotated& spec, const Job& job, const std::byte* data) {
  const format::Geometry geometry = job.sections.has_segment_bits() ? job.geometry : format::flattened(job.geometry);
  const std::int64_t mask_run = geometry.segments == 1 ? job.sections.mask_used : job.sections.mask_words * 4;
  auto* const bytes = const_cast<std::byte*>(data);
  return {bytes + job.sections.stats,     bytes + job.sections.codes,
          bytes + job.sections.mask,      mask_run,
          segment_table(spec, job, data), geometry,
          tile_count(geometry),           spec.stats};
}

/// A lane's elements of one block in spatial layout. In a full tile, which a dense tensor fills, all of them exist and
/// the formulas are short.
struct LanePlace {
  std::int64_t g;      ///< its group
  std::int64_t first;  ///< its first element
  int count;           ///< how many of its eight elements exist; may be negative
  int group_count;     ///< number of elements of its group
  std::byte* mask;     ///< its byte of the mask plane, or null
};

/// The group of a lane's elements of one block.
__device__ __forceinline__ std::int64_t block_group(int group, std::int64_t tile, int block, int lane) {
  const bool halves = group == 128;
  return (tile * kBlocks + block) * (halves ? 2 : 1) + (halves ? lane / 16 : 0);
}

template <bool Full>
__device__ __forceinline__ LanePlace lane_place(const RotatedBuffer& buffer, int group, std::int64_t tile, int block,
                                                int lane) {
  const format::Geometry& geometry = buffer.geometry;
  const std::int64_t padded = tile * kTile + lane * kChunk + block * kBlock;
  const std::int64_t g = block_group(group, tile, block, lane);
  if constexpr (Full) {
    return {g, padded, kChunk, group, buffer.mask + tile * (kTile / 8) + lane + block * (kBlock / 8)};
  }
  if (g >= geometry.groups()) return {g, 0, 0, 1, nullptr};
  const format::GroupRange range = group_range_of(geometry, g);
  const int position = static_cast<int>(padded) & (group - 1);
  const std::int64_t byte = (range.number * group + position) >> 3;
  return {g, range.first + position, range.count - position, range.count,
          byte < buffer.mask_segment_bytes ? buffer.mask + range.segment * buffer.mask_segment_bytes + byte : nullptr};
}

/// The places of a lane's elements. In a full tile they are computed where they are needed.
template <bool Full>
class LanePlaces {
 public:
  __device__ LanePlaces(const RotatedBuffer& buffer, int group, std::int64_t tile, int lane)
      : buffer_(buffer), group_(group), tile_(tile), lane_(lane) {}

  [[nodiscard]] __device__ LanePlace of(int block) const {
    return lane_place<true>(buffer_, group_, tile_, block, lane_);
  }

 private:
  const RotatedBuffer& buffer_;
  int group_;
  std::int64_t tile_;
  int lane_;
};

/// In any other tile they are computed once, since that takes divisions.
template <>
class LanePlaces<false> {
 public:
  __device__ LanePlaces(const RotatedBuffer& buffer, int group, std::int64_t tile, int lane) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) places_[b] = lane_place<false>(buffer, group, tile, b, lane);
  }

  [[nodiscard]] __device__ const LanePlace& of(int block) const { return places_[block]; }

 private:
  LanePlace places_[kBlocks];
};

/// Whether the group to which the slot belongs exists.
template <bool Full>
__device__ __forceinline__ bool slot_exists(const format::Geometry& geometry, std::int64_t tile, int block, int slot) {
  if constexpr (Full) return true;
  return tile * kTile + block * kBlock + slot * kChunk < geometry.groups() * geometry.group;
}

/// Where a lane's codes of a tile lie, and how many bits they have. Codes of one width are contiguous across segments,
/// since `rotated` also stores codes of absent elements.
template <int Bits, bool Full>
class TileCodes {
 public:
  __device__ TileCodes(const RotatedBuffer& buffer, int /*group*/, std::int64_t tile, int lane)
      : first_(buffer.codes + (tile * (kTile / 8) + lane) * Bits) {}

  [[nodiscard]] __device__ static constexpr bool whole() { return true; }
  [[nodiscard]] __device__ static constexpr int bits(int /*block*/) { return Bits; }
  [[nodiscard]] __device__ std::byte* at(int block) const { return first_ + block * (kBlock / 8 * Bits); }

  /// Calls body.operator()<Width>() for each width that any lane has. All lanes call this function, and the body too.
  template <class Body>
  __device__ static void for_each_width(Body&& body) {
    body.template operator()<Bits>();
  }

 private:
  std::byte* first_;
};

/// A tile that lies in one segment.
template <>
class TileCodes<kRunTimeBits, true> {
 public:
  __device__ TileCodes(const RotatedBuffer& buffer, int /*group*/, std::int64_t tile, int lane) {
    const TileRun found = buffer.table.tile_run(tile);
    whole_ = found.whole;
    bits_ = found.run.bits;
    first_ = found.run.codes + lane * bits_;
  }

  [[nodiscard]] __device__ bool whole() const { return whole_; }
  [[nodiscard]] __device__ int bits(int /*block*/) const { return bits_; }
  [[nodiscard]] __device__ std::byte* at(int block) const { return first_ + block * (kBlock / 8) * bits_; }

  template <class Body>
  __device__ void for_each_width(Body&& body) const {
    with_width<kRunTimeBits, Rotated::kMostBits>(bits_, body);
  }

 private:
  std::byte* first_;
  int bits_;
  bool whole_;
};

/// A tile in which every group may have its own width; it is 0 where there is no group.
template <>
class TileCodes<kRunTimeBits, false> {
 public:
  __device__ TileCodes(const RotatedBuffer& buffer, int group, std::int64_t tile, int lane) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      bits_[b] = 0;
      at_[b] = nullptr;
      const std::int64_t g = block_group(group, tile, b, lane);
      if (g >= buffer.geometry.groups()) continue;
      const format::GroupRange range = group_range_of(buffer.geometry, g);
      const CodeRun run = buffer.table.run(range.segment);
      const int position = lane * kChunk & (group - 1);
      bits_[b] = run.bits;
      at_[b] = run.codes + ((range.number * group + position) >> 3) * run.bits;
    }
  }

  [[nodiscard]] __device__ int bits(int block) const { return bits_[block]; }
  [[nodiscard]] __device__ std::byte* at(int block) const { return at_[block]; }

  template <class Body>
  __device__ void for_each_width(Body&& body) const {
    [&]<int... Below>(std::integer_sequence<int, Below...>) {
      ((has(Below + 1) ? body.template operator()<Below + 1>() : void()), ...);
    }(std::make_integer_sequence<int, Rotated::kMostBits>{});
  }

 private:
  [[nodiscard]] __device__ bool has(int width) const {
    bool found = false;
#pragma unroll
    for (const int bits : bits_) found = found || bits == width;
    return __any_sync(~0U, found);
  }

  std::byte* at_[kBlocks];
  int bits_[kBlocks];
};

}  // namespace actzip::cuda
