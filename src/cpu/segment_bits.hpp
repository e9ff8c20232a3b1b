// Segments with bits of their own on the CPU. A loop handles one width and runs of equal length. Neighbouring segments
// that agree in both are therefore one call, with a job whose sections say where the codes of these segments begin.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "codec/job.hpp"
#include "cpu/loops.hpp"
#include "format/segment_bits.hpp"

namespace actzip::cpu {

/// Writes the sections of widths and starts from the bits that segments ask for, and zeros where no segment will write
/// codes.
template <class Spec>
void write_segment_bits(const Spec& spec, const codec::EncodeJob& job) {
  const format::SegmentRuns runs = format::segment_runs(spec, job.geometry, job.sections);
  std::byte* const codes = job.dst + job.sections.codes;
  std::int64_t extra = 0;
  for (std::int64_t s = 0; s < runs.segments; ++s) {
    const int asked = std::to_integer<int>(job.segment_bits[s]);
    const format::SegmentRun run = format::granted_run(runs, s, extra, asked);
    extra += runs.extra(asked);
    job.dst[job.sections.table + s] = static_cast<std::byte>(run.bits);
    const auto start = static_cast<std::uint32_t>(run.start);
    std::memcpy(job.dst + job.sections.starts + s * format::kStartBytes, &start, sizeof start);
    const std::int64_t end = run.start + runs.words(run.bits);
    const std::int64_t next = s + 1 < runs.segments ? runs.start(s + 1, extra) : runs.capacity;
    std::memset(codes + end * 4, 0, static_cast<std::size_t>((next - end) * 4));
  }
}

inline format::SegmentRun load_run(const format::SegmentRuns& runs, const format::Sections& sections,
                                   const std::byte* buffer, std::int64_t s) {
  std::uint32_t start = 0;
  std::memcpy(&start, buffer + sections.starts + s * format::kStartBytes, sizeof start);
  return format::stored_run(runs, start, std::to_integer<int>(buffer[sections.table + s]));
}

template <class Spec, class Job, class Loop>
void run_segments_loop(Loop loop, const Spec& spec, const Job& job, const std::byte* buffer, math::HashKey key,
                       Range groups) {
  const format::SegmentRuns runs = format::segment_runs(spec, job.geometry, job.sections);
  const std::int64_t segment_groups = job.geometry.segment_groups;
  Job part = job;
  Spec own = spec;
  for (std::int64_t s = groups.first / segment_groups; groups.first < groups.last;) {
    const format::SegmentRun run = load_run(runs, job.sections, buffer, s);
    const std::int64_t words = runs.words(run.bits);
    std::int64_t next = s + 1;
    while (next * segment_groups < groups.last) {
      const format::SegmentRun other = load_run(runs, job.sections, buffer, next);
      if (other.bits != run.bits || other.start != run.start + (next - s) * words) break;
      ++next;
    }
    own.bits = Bits(run.bits);
    part.sections.code_words = words;
    part.sections.codes = job.sections.codes + 4 * (run.start - s * words);
    const std::int64_t last = std::min(next * segment_groups, groups.last);
    loop(own, part, key, Range{groups.first, last});
    groups.first = last;
    s = next;
  }
}

/// Runs the loop over a range of a job whose codes are in `buffer`.
template <class Spec, class Job, class Loop>
void run_loop(Loop loop, const Spec& spec, const Job& job, const std::byte* buffer, math::HashKey key, Range range) {
  if constexpr (format::HasSegmentBits<Spec>) {
    if (job.sections.has_segment_bits()) return run_segments_loop(loop, spec, job, buffer, key, range);
  }
  loop(spec, job, key, range);
}

}  // namespace actzip::cpu
