#include "cpu/backend.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/float_mode.hpp"
#include "cpu/level.hpp"
#include "cpu/segment_bits.hpp"
#include "format/geometry.hpp"
#include "math/hash.hpp"

namespace actzip::cpu {
namespace {

constexpr std::int64_t kLeastTaskElems = 65536;  ///< fewer elements are not worth waking a thread
constexpr std::int64_t kTasksPerThread = 4;      ///< several, so that others need not wait for a late thread

/// Calls body(Range) on the executor's threads until all units are done. A unit has at most `unit_elems` elements.
template <class Body>
void run_ranges(Executor& executor, std::int64_t units, std::int64_t unit_elems, const Body& body) {
  struct Context {
    const Body& body;
    std::int64_t units;
    std::int64_t step;
  };
  const std::int64_t threads = std::max(executor.concurrency(), 1);
  const std::int64_t least = format::ceil_div(kLeastTaskElems, unit_elems);
  const std::int64_t step = std::max(least, format::ceil_div(units, threads == 1 ? 1 : threads * kTasksPerThread));
  Context context{body, units, step};
  const auto task = [](void* opaque, std::int64_t index) {
    const auto& c = *static_cast<const Context*>(opaque);
    const FloatMode mode;
    c.body(Range{index * c.step, std::min((index + 1) * c.step, c.units)});
  };
  executor.run(format::ceil_div(units, step), task, &context);
}

math::HashKey resolve(Seed seed) { return math::hash_key(seed.address() != nullptr ? *seed.address() : seed.value()); }

/// Writes the zeros behind each section. This happens before the loops run: if the last word of the codes is padding in
/// part, they write only the rest of it.
void write_padding(std::byte* dst, const format::Sections& s) {
  const auto zero = [dst](std::int64_t first, std::int64_t last) {
    if (first < last) std::memset(dst + first, 0, static_cast<std::size_t>(last - first));
  };
  zero(s.table + s.table_used, s.starts);
  zero(s.starts + s.starts_used, s.stats);
  zero(s.stats + s.stats_used, s.codes);
  zero(s.codes + s.codes_used - 4, s.mask);
  zero(s.mask + s.mask_used, s.total);
}

template <class Spec>
void run_encode(const Spec& spec, const codec::EncodeJob& job, std::int64_t units, std::int64_t unit_elems) {
  const EncodeLoop<Spec> loop = current_loops().CodecLoops<Spec>::encode;
  const math::HashKey key = resolve(job.seed);
  write_padding(job.dst, job.sections);
  run_ranges(job.stream->executor(), units, unit_elems,
             [&](Range range) { run_loop(loop, spec, job, job.dst, key, range); });
}

template <class Spec>
void run_decode(const Spec& spec, const codec::DecodeJob& job, std::int64_t units, std::int64_t unit_elems) {
  const DecodeLoop<Spec> loop = current_loops().CodecLoops<Spec>::decode;
  const math::HashKey key = resolve(job.seed);
  run_ranges(job.stream->executor(), units, unit_elems,
             [&](Range range) { run_loop(loop, spec, job, job.src, key, range); });
}

template <class Spec>
void encode_groups(const Spec& spec, const codec::EncodeJob& job) {
  if (job.sections.has_segment_bits()) write_segment_bits(spec, job);
  run_encode(spec, job, job.geometry.groups(), job.geometry.group);
}
template <class Spec>
void decode_groups(const Spec& spec, const codec::DecodeJob& job) {
  run_decode(spec, job, job.geometry.groups(), job.geometry.group);
}
template <class Spec>
void encode_blocks(const Spec& spec, const codec::EncodeJob& job) {
  run_encode(spec, job, format::ceil_div(job.geometry.elems, kBlock), kBlock);
}
template <class Spec>
void decode_blocks(const Spec& spec, const codec::DecodeJob& job) {
  run_decode(spec, job, format::ceil_div(job.geometry.elems, kBlock), kBlock);
}

/// Writes the averages and statistics of all samples.
void measure_samples(const Dual& spec, const codec::EncodeJob& job) {
  const format::DualLayout layout = format::dual_layout(spec, job.geometry.elems);
  const MeasureLoop loop = current_loops().measure;
  run_ranges(job.stream->executor(), layout.samples, layout.positions * layout.channels, [&](Range samples) {
    std::vector<float> room(static_cast<std::size_t>(measure_room(layout)));
    loop(spec, job, samples, room.data());
  });
}

}  // namespace

void encode(const Affine& spec, const codec::EncodeJob& job) { encode_groups(spec, job); }
void encode(const Rotated& spec, const codec::EncodeJob& job) { encode_groups(spec, job); }
void encode(const Mask& spec, const codec::EncodeJob& job) { encode_blocks(spec, job); }
void encode(const Index& spec, const codec::EncodeJob& job) { encode_blocks(spec, job); }
void encode(const Cast& spec, const codec::EncodeJob& job) { encode_blocks(spec, job); }
void encode(const Copy& spec, const codec::EncodeJob& job) { encode_blocks(spec, job); }
void encode(const Dual& spec, const codec::EncodeJob& job) {
  measure_samples(spec, job);
  encode_blocks(spec, job);
}

void decode(const Affine& spec, const codec::DecodeJob& job) { decode_groups(spec, job); }
void decode(const Rotated& spec, const codec::DecodeJob& job) { decode_groups(spec, job); }
void decode(const Mask& spec, const codec::DecodeJob& job) { decode_blocks(spec, job); }
void decode(const Index& spec, const codec::DecodeJob& job) { decode_blocks(spec, job); }
void decode(const Cast& spec, const codec::DecodeJob& job) { decode_blocks(spec, job); }
void decode(const Copy& spec, const codec::DecodeJob& job) { decode_blocks(spec, job); }
void decode(const Dual& spec, const codec::DecodeJob& job) { decode_blocks(spec, job); }

}  // namespace actzip::cpu
