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

/// Elements cut into equal segments, and each of these into groups.
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

  /// Whether group g simply holds elements [g*group, (g+1)*group), the last one perhaps fewer.
  [[nodiscard]] ACTZIP_HD constexpr bool flat() const { return segments == 1 || segment_elems % group == 0; }
};

/// Segments of whole groups lie behind each other as if there were one: the same bytes, a simpler geometry.
constexpr Geometry flattened(const Geometry& geometry) {
  return geometry.flat() ? Geometry(geometry.elems, 1, geometry.group) : geometry;
}

/// The elements of one group.
struct GroupRange {
  std::int64_t first;    ///< its first element, in memory order
  std::int64_t segment;  ///< the segment it belongs to
  std::int64_t number;   ///< its number inside that segment
  int count;             ///< how many elements it has: `group`, or fewer at the end of a segment
};

ACTZIP_HD constexpr GroupRange group_range(const Geometry& geometry, std::int64_t g) {
  const std::int64_t segment = geometry.segments == 1 ? 0 : g / geometry.segment_groups;
  const std::int64_t number = g - segment * geometry.segment_groups;
  const std::int64_t inside = number * geometry.group;
  const std::int64_t left = geometry.segment_elems - inside;
  return {segment * geometry.segment_elems + inside, segment, number,
          static_cast<int>(left < geometry.group ? left : geometry.group)};
}

/// Offsets of the sections of a buffer, and the length of one segment's run in each.
struct Sections {
  std::int64_t stats = 0;
  std::int64_t stats_used = 0;  ///< bytes before the padding
  std::int64_t codes = 0;
  std::int64_t codes_used = 0;
  std::int64_t mask = 0;
  std::int64_t mask_used = 0;
  std::int64_t total = 0;
  std::int64_t code_words = 0;  ///< 32-bit words of codes of one segment
  std::int64_t mask_words = 0;  ///< 32-bit words of mask plane of one segment
};

namespace detail {
constexpr Sections place(std::int64_t stats_used, std::int64_t codes_used, std::int64_t mask_used) {
  Sections s;
  s.stats_used = stats_used;
  s.codes = align16(stats_used);
  s.codes_used = codes_used;
  s.mask = s.codes + align16(codes_used);
  s.mask_used = mask_used;
  s.total = s.mask + align16(mask_used);
  return s;
}

constexpr std::int64_t stats_bytes(StatsType type) { return type == StatsType::bf16 ? 4 : 8; }
}  // namespace detail

constexpr Geometry geometry(const Affine& spec, std::int64_t elems, Segments segments) {
  return {elems, segments.count, spec.group.value};
}
constexpr Geometry geometry(const Rotated& spec, std::int64_t elems, Segments segments) {
  return {elems, segments.count, spec.group.value};
}
/// Codecs without groups see one run of elements.
template <class Spec>
constexpr Geometry geometry(const Spec& /*spec*/, std::int64_t elems, Segments /*segments*/) {
  return {elems, 1, 1};
}

constexpr Sections sections(const Affine& spec, const Geometry& geometry, DType /*dtype*/) {
  const std::int64_t words = ceil_div(geometry.segment_elems * spec.bits.value, 32);
  Sections s = detail::place(geometry.groups() * detail::stats_bytes(spec.stats), geometry.segments * words * 4, 0);
  s.code_words = words;
  return s;
}

constexpr Sections sections(const Rotated& spec, const Geometry& geometry, DType /*dtype*/) {
  const std::int64_t words = geometry.segment_groups * (geometry.group * spec.bits.value / 32);
  const std::int64_t mask_words = spec.mask_plane ? ceil_div(geometry.segment_elems, 32) : 0;
  Sections s = detail::place(geometry.groups() * detail::stats_bytes(spec.stats), geometry.segments * words * 4,
                             geometry.segments * mask_words * 4);
  s.code_words = words;
  s.mask_words = mask_words;
  return s;
}

constexpr Sections sections(const Mask& /*spec*/, const Geometry& geometry, DType /*dtype*/) {
  return detail::place(0, ceil_div(geometry.elems, 32) * 4, 0);
}
constexpr Sections sections(const Index& spec, const Geometry& geometry, DType /*dtype*/) {
  return detail::place(0, ceil_div(geometry.elems * index_bits(spec.bound), 32) * 4, 0);
}
constexpr Sections sections(const Cast& /*spec*/, const Geometry& geometry, DType /*dtype*/) {
  return detail::place(0, ceil_div(geometry.elems * 16, 32) * 4, 0);
}
constexpr Sections sections(const Copy& /*spec*/, const Geometry& geometry, DType dtype) {
  return detail::place(0, ceil_div(geometry.elems * static_cast<std::int64_t>(dtype_bytes(dtype)), 4) * 4, 0);
}

}  // namespace actzip::format
