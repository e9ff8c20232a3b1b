// Segments with bits of their own: how many bits each one gets, and where its codes lie. Section 2 of format.md.
#pragma once

#include <cstdint>

#include "format/geometry.hpp"
#include "macros.hpp"

namespace actzip::format {

/// Codecs whose segments may have bits of their own.
template <class Spec>
concept HasSegmentBits = requires(const Spec& spec, const Geometry& geometry) { run_codes(spec, geometry); };

/// The code runs of segments that have equally many codes, but bits of their own.
struct SegmentRuns {
  std::int64_t segments = 0;
  std::int64_t codes = 0;     ///< of one segment
  std::int64_t capacity = 0;  ///< words for all segments together, enough for 1 bit each
  int most_bits = 1;

  /// Words that one segment takes at this width.
  [[nodiscard]] ACTZIP_HD constexpr std::int64_t words(int bits) const { return (codes * bits + 31) / 32; }

  [[nodiscard]] ACTZIP_HD constexpr int clamped(int bits) const {
    return bits < 1 ? 1 : bits > most_bits ? most_bits : bits;
  }

  /// Words that a segment asks for beyond those that it takes at 1 bit.
  [[nodiscard]] ACTZIP_HD constexpr std::int64_t extra(int asked) const { return words(clamped(asked)) - words(1); }

  /// Where segment `s` starts if the segments before it ask for `extra_before` words. Every segment keeps its words for
  /// 1 bit, and the spare words go to the segments that come first. So a prefix sum is all that a device has to
  /// compute.
  [[nodiscard]] ACTZIP_HD constexpr std::int64_t start(std::int64_t s, std::int64_t extra_before) const {
    const std::int64_t spare = capacity - segments * words(1);
    return s * words(1) + (extra_before < spare ? extra_before : spare);
  }
};

template <class Spec>
constexpr SegmentRuns segment_runs(const Spec& spec, const Geometry& geometry, const Sections& sections) {
  return {geometry.segments, run_codes(spec, geometry), sections.codes_used / 4, Spec::kMostBits};
}

/// The codes of one segment.
struct SegmentRun {
  std::int64_t start;  ///< in words, from the start of the section
  int bits;
};

/// The run that segment `s` gets: with the bits that it asks for, or with the most bits that fit while each segment
/// behind it keeps 1 bit.
ACTZIP_HD constexpr SegmentRun granted_run(const SegmentRuns& runs, std::int64_t s, std::int64_t extra_before,
                                           int asked) {
  const std::int64_t start = runs.start(s, extra_before);
  const std::int64_t room = runs.capacity - (runs.segments - 1 - s) * runs.words(1) - start;
  int bits = runs.clamped(asked);
  while (bits > 1 && runs.words(bits) > room) --bits;
  return {start, bits};
}

/// The run that a buffer states for a segment. The buffer is not trusted: whatever it states, the run lies inside the
/// codes section.
ACTZIP_HD constexpr SegmentRun stored_run(const SegmentRuns& runs, std::int64_t start, int bits) {
  const int allowed = runs.clamped(bits);
  if (start + runs.words(allowed) <= runs.capacity) return {start, allowed};
  const std::int64_t last = runs.capacity - runs.words(1);
  return {start < last ? start : last, 1};
}

}  // namespace actzip::format
