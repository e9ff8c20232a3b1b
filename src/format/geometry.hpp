// How elements fall into segments and groups, and where a group's statistics, codes and mask bits lie: sections 2 and 3
// of format.md as closed formulas.
#pragma once

#include <cstdint>

#include "actzip/spec.hpp"
#include "actzip/view.hpp"
#include "macros.hpp"

namespace actzip::format {

ACTZIP_HD constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }
ACTZIP_HD constexpr std::int64_t align16(std::int64_t bytes) { return ceil_div(bytes, 16) * 16; }

/// The elements, cut into equal segments, and these into groups.
struct Geometry {
  std::int64_t elems = 0;
  std::int64_t segments = 1;
  std::int64_t segment_elems = 0;
  std::int64_t segment_groups = 0;
  int group = 1;

  constexpr Geometry() = default;
  constexpr Geometry(std::int64_t elems, std::int64_t segments, int group)
      : elems(elems),
        segments(segments),
        segment_elems(elems / segments),
        segment_groups(ceil_div(elems / segments, group)),
        group(group) {}

  [[nodiscard]] ACTZIP_HD constexpr std::int64_t groups() const { return segments * segment_groups; }

  /// Whether group g holds elements [g*group, (g+1)*group); only the last group may have fewer.
  [[nodiscard]] ACTZIP_HD constexpr bool flat() const { return segments == 1 || segment_elems % group == 0; }
};

/// Segments that consist of whole groups have the same bytes as one single segment; this returns that simpler geometry.
constexpr Geometry flattened(const Geometry& geometry) {
  return geometry.flat() ? Geometry(geometry.elems, 1, geometry.group) : geometry;
}

/// The elements of one group.
struct GroupRange {
  std::int64_t first;    ///< number of its first element, in memory order
  std::int64_t segment;  ///< the segment it belongs to
  std::int64_t number;   ///< its number within that segment
  int count;             ///< its number of elements: `group`, or fewer at the end of a segment
};

/// The elements of group g, which lies in `segment`.
ACTZIP_HD constexpr GroupRange group_range_in(const Geometry& geometry, std::int64_t g, std::int64_t segment) {
  const std::int64_t number = g - segment * geometry.segment_groups;
  const std::int64_t inside = number * geometry.group;
  const std::int64_t left = geometry.segment_elems - inside;
  return {segment * geometry.segment_elems + inside, segment, number,
          static_cast<int>(left < geometry.group ? left : geometry.group)};
}

ACTZIP_HD constexpr GroupRange group_range(const Geometry& geometry, std::int64_t g) {
  return group_range_in(geometry, g, geometry.segments == 1 ? 0 : g / geometry.segment_groups);
}

/// Size of one entry in the section of starts.
inline constexpr std::int64_t kStartBytes = 4;

/// Offsets and used bytes of a buffer's sections, and the length of one segment's run in each.
struct Sections {
  std::int64_t table = 0;
  std::int64_t table_used = 0;  ///< one byte for each segment if segments have bits of their own, else 0
  std::int64_t starts = 0;
  std::int64_t starts_used = 0;
  std::int64_t stats = 0;
  std::int64_t stats_used = 0;  ///< without the padding, like all that end in _used
  std::int64_t codes = 0;
  std::int64_t codes_used = 0;
  std::int64_t mask = 0;
  std::int64_t mask_used = 0;
  std::int64_t total = 0;
  std::int64_t code_words = 0;  ///< 32-bit words of one segment's codes; 0 if segments have bits of their own
  std::int64_t mask_words = 0;  ///< 32-bit words of one segment's mask plane

  /// Whether segments have bits of their own.
  [[nodiscard]] ACTZIP_HD constexpr bool has_segment_bits() const { return table_used != 0; }
};

/// Words that are enough for the codes of all segments, `run` codes each, if their bits add up to at most `total_bits`.
/// Runs are padded to whole words; which of the two bounds is smaller depends on their length.
constexpr std::int64_t segment_capacity(std::int64_t segments, std::int64_t run, std::int64_t total_bits) {
  const std::int64_t by_bits = total_bits * ceil_div(run, 32);
  const std::int64_t by_padding = (run * total_bits + 31 * segments) / 32;
  return by_bits < by_padding ? by_bits : by_padding;
}

namespace detail {
constexpr Sections place(std::int64_t segment_bytes, std::int64_t stats_used, std::int64_t codes_used,
                         std::int64_t mask_used) {
  Sections s;
  s.table_used = segment_bytes;
  s.starts = align16(segment_bytes);
  s.starts_used = segment_bytes * kStartBytes;
  s.stats = s.starts + align16(s.starts_used);
  s.stats_used = stats_used;
  s.codes = s.stats + align16(stats_used);
  s.codes_used = codes_used;
  s.mask = s.codes + align16(codes_used);
  s.mask_used = mask_used;
  s.total = s.mask + align16(mask_used);
  return s;
}

constexpr Sections place(std::int64_t codes_used) { return place(0, 0, codes_used, 0); }

/// For codecs with groups: each segment has `run` codes and `mask_words` words of mask plane.
constexpr Sections place(const Geometry& geometry, StatsType stats, std::int64_t run, int bits, std::int64_t mask_words,
                         std::int64_t total_bits) {
  const bool segment_bits = total_bits != 0 && geometry.elems != 0;
  const std::int64_t words = segment_bits ? 0 : ceil_div(run * bits, 32);
  const std::int64_t all_words =
      segment_bits ? segment_capacity(geometry.segments, run, total_bits) : geometry.segments * words;
  Sections s = place(segment_bits ? geometry.segments : 0, geometry.groups() * (stats == StatsType::bf16 ? 4 : 8),
                     all_words * 4, geometry.segments * mask_words * 4);
  s.code_words = words;
  s.mask_words = mask_words;
  return s;
}
}  // namespace detail

constexpr Geometry geometry(const Affine& spec, std::int64_t elems, Segments segments) {
  return {elems, segments.count, spec.group.value};
}
constexpr Geometry geometry(const Rotated& spec, std::int64_t elems, Segments segments) {
  return {elems, segments.count, spec.group.value};
}
/// Codecs without groups ignore segments and see one run of elements.
template <class Spec>
constexpr Geometry geometry(const Spec& /*spec*/, std::int64_t elems, Segments /*segments*/) {
  return {elems, 1, 1};
}

/// Number of codes in the run of one segment.
constexpr std::int64_t run_codes(const Affine& /*spec*/, const Geometry& geometry) { return geometry.segment_elems; }
constexpr std::int64_t run_codes(const Rotated& /*spec*/, const Geometry& geometry) {
  return geometry.segment_groups * geometry.group;
}

/// `total_bits` is Segments::total_bits.
constexpr Sections sections(const Affine& spec, const Geometry& geometry, DType /*dtype*/,
                            std::int64_t total_bits = 0) {
  return detail::place(geometry, spec.stats, run_codes(spec, geometry), spec.bits.value, 0, total_bits);
}
constexpr Sections sections(const Rotated& spec, const Geometry& geometry, DType /*dtype*/,
                            std::int64_t total_bits = 0) {
  const std::int64_t mask_words = spec.mask_plane ? ceil_div(geometry.segment_elems, 32) : 0;
  return detail::place(geometry, spec.stats, run_codes(spec, geometry), spec.bits.value, mask_words, total_bits);
}
constexpr Sections sections(const Mask& /*spec*/, const Geometry& geometry, DType /*dtype*/) {
  return detail::place(ceil_div(geometry.elems, 32) * 4);
}
constexpr Sections sections(const Index& spec, const Geometry& geometry, DType /*dtype*/) {
  return detail::place(ceil_div(geometry.elems * index_bits(spec.bound), 32) * 4);
}
constexpr Sections sections(const Cast& /*spec*/, const Geometry& geometry, DType /*dtype*/) {
  return detail::place(ceil_div(geometry.elems * 16, 32) * 4);
}
constexpr Sections sections(const Copy& /*spec*/, const Geometry& geometry, DType dtype) {
  return detail::place(ceil_div(geometry.elems * static_cast<std::int64_t>(dtype_bytes(dtype)), 4) * 4);
}

}  // namespace actzip::format
