// Segments with their own bits: each must be byte for byte what the codec makes of it at its width. No table, valid or
// not, may make a call read or write outside its buffers.
#include "format/segment_bits.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "actzip/codec.hpp"
#include "property/many_seeds.hpp"
#include "property/sweep.hpp"
#include "support/backends.hpp"
#include "support/generators.hpp"
#include "support/harness.hpp"
#include "support/thread_executor.hpp"

namespace actzip::testing {
namespace {

class SegmentBits : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Cpu, SegmentBits, ::testing::ValuesIn(cpu_backends()), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, SegmentBits, ::testing::ValuesIn(cuda_backends()), backend_name);

class CpuSegmentBits : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Cpu, CpuSegmentBits, ::testing::ValuesIn(cpu_backends()), backend_name);

std::vector<CodecSpec> mixed_variants() {
  return {Affine{},
          Affine{Bits(2), Rounding::nearest, GroupSize(32), StatsType::f32, -0.5F},
          Affine{Bits(8), Rounding::dithered, GroupSize(128)},
          Affine{Bits(1), Rounding::dithered, GroupSize(1024), StatsType::f32},
          Rotated{},
          Rotated{Bits(4), GroupSize(128), StatsType::f32, true},
          Rotated{Bits(2), GroupSize(128)},
          Rotated{Bits(1), GroupSize(256), StatsType::bf16, true}};
}

int most_bits(const CodecSpec& spec) {
  return std::holds_alternative<Rotated>(spec) ? Rotated::kMostBits : Affine::kMostBits;
}

CodecSpec with_bits(CodecSpec spec, int bits) {
  if (auto* affine = std::get_if<Affine>(&spec)) affine->bits = Bits(bits);
  if (auto* rotated = std::get_if<Rotated>(&spec)) rotated->bits = Bits(bits);
  return spec;
}

/// A table of bits and its total.
struct Table {
  Bytes bits;
  Segments segments;

  [[nodiscard]] int of(std::size_t s) const { return std::to_integer<int>(bits[s]); }
  [[nodiscard]] Call call(std::uint8_t fill = 0xA5) const {
    return {.segments = segments, .fill = fill, .segment_bits = bits};
  }
};

Table random_table(std::int64_t count, int most, std::uint64_t seed) {
  Random random(seed);
  Table table{{}, {count, 0}};
  for (std::int64_t s = 0; s < count; ++s) {
    const std::int64_t bits = 1 + random.below(most);
    table.bits.push_back(static_cast<std::byte>(bits));
    table.segments.total_bits += bits;
  }
  return table;
}

/// Segments of one length.
struct Cut {
  std::int64_t length;
  std::int64_t count;
};

/// Single elements, parts of words, groups and tiles, whole ones and what is around them.
std::vector<Cut> cuts(std::int64_t group) {
  return {{1, 1},         {1, 70},     {5, 41},        {16, 9},           {32, 40},        {33, 20},
          {group - 1, 7}, {group, 33}, {group + 1, 9}, {96, 50},          {3 * group, 11}, {1024, 9},
          {1056, 7},      {1536, 5},   {2048, 6},      {4 * group + 7, 5}};
}

format::Sections sections_of(const CodecSpec& spec, std::int64_t elems, Segments segments) {
  format::Sections result;
  if (const auto* affine = std::get_if<Affine>(&spec)) {
    result = format::sections(*affine, format::geometry(*affine, elems, segments), DType::f32, segments.total_bits);
  } else if (const auto* rotated = std::get_if<Rotated>(&spec)) {
    result = format::sections(*rotated, format::geometry(*rotated, elems, segments), DType::f32, segments.total_bits);
  }
  return result;
}

Bytes part(const Bytes& bytes, std::int64_t first, std::int64_t count) {
  return {bytes.begin() + first, bytes.begin() + first + count};
}

std::uint32_t word(const Bytes& bytes, std::int64_t offset) {
  std::uint32_t result = 0;
  std::memcpy(&result, bytes.data() + offset, sizeof result);
  return result;
}

/// Asserts that segment `s` of mixed bytes, with its statistics and codes, is that segment of uniform ones.
void expect_same_segment(const CodecSpec& spec, const Cut& cut, Segments segments, std::int64_t s, const Bytes& mixed,
                         const Bytes& uniform) {
  const format::Sections own = sections_of(spec, cut.length * cut.count, segments);
  const format::Sections same = sections_of(spec, cut.length * cut.count, {cut.count});
  const std::int64_t stats = same.stats_used / cut.count;
  ASSERT_EQ(part(mixed, own.stats + s * stats, stats), part(uniform, same.stats + s * stats, stats)) << "segment " << s;
  const std::int64_t words = same.code_words * 4;
  const std::int64_t start = word(mixed, own.starts + 4 * s);
  ASSERT_LE(4 * start + words, own.codes_used);
  ASSERT_EQ(part(mixed, own.codes + 4 * start, words), part(uniform, same.codes + s * words, words)) << "segment " << s;
}

void check_pieces(Harness& harness, const CodecSpec& spec, DType dtype, const Cut& cut, const Table& table) {
  const std::int64_t elems = cut.length * cut.count;
  const Tensor src = dense(dtype, sample(spec, dtype, elems, 201));
  const Bytes mixed = harness.encode(spec, src, table.call());
  ASSERT_EQ(part(mixed, 0, cut.count), table.bits);
  ASSERT_TRUE(mixed == harness.encode(spec, src, table.call(0x5A))) << "a byte was not written";
  const Bytes decoded = harness.decode(spec, mixed, dtype, line(elems), table.call());
  const auto segment_bytes = cut.length * static_cast<std::int64_t>(dtype_bytes(dtype));
  for (int bits = 1; bits <= most_bits(spec); ++bits) {
    if (std::find(table.bits.begin(), table.bits.end(), static_cast<std::byte>(bits)) == table.bits.end()) continue;
    const Call uniform{.segments = {cut.count}};
    const Bytes encoded = harness.encode(with_bits(spec, bits), src, uniform);
    const Bytes wanted = harness.decode(with_bits(spec, bits), encoded, dtype, line(elems), uniform);
    for (std::int64_t s = 0; s < cut.count; ++s) {
      if (table.of(static_cast<std::size_t>(s)) != bits) continue;
      expect_same_segment(with_bits(spec, bits), cut, table.segments, s, mixed, encoded);
      ASSERT_EQ(part(decoded, s * segment_bytes, segment_bytes), part(wanted, s * segment_bytes, segment_bytes))
          << "segment " << s << " of " << bits << " bits";
    }
  }
}

TEST_P(SegmentBits, each_segment_is_what_the_codec_makes_of_it_at_its_width) {
  Harness harness(device());
  for (const CodecSpec& spec : mixed_variants()) {
    for (const DType dtype : kFloats) {
      for (const Cut& cut : cuts(group_of(spec))) {
        SCOPED_TRACE(describe(spec, dtype, cut.length) + " in " + std::to_string(cut.count) + " segments");
        check_pieces(harness, spec, dtype, cut, random_table(cut.count, most_bits(spec), 202));
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(SegmentBits, a_table_of_equal_bits_gives_the_codes_and_statistics_of_that_width) {
  Harness harness(device());
  for (const CodecSpec& spec : mixed_variants()) {
    for (int bits = 1; bits <= most_bits(spec); ++bits) {
      for (const Cut& cut : {Cut{33, 20}, Cut{group_of(spec) + 1, 5}, Cut{3072, 3}}) {
        SCOPED_TRACE(describe(spec, DType::bf16, cut.length) + ", bits " + std::to_string(bits));
        const Table table{Bytes(static_cast<std::size_t>(cut.count), static_cast<std::byte>(bits)),
                          {cut.count, cut.count * bits}};
        const CodecSpec same = with_bits(spec, bits);
        const Tensor src = dense(DType::bf16, sample(spec, DType::bf16, cut.length * cut.count, 203));
        const Bytes mixed = harness.encode(spec, src, table.call());
        const Bytes uniform = harness.encode(same, src, {.segments = {cut.count}});
        const format::Sections a = sections_of(spec, cut.length * cut.count, table.segments);
        const format::Sections b = sections_of(same, cut.length * cut.count, {cut.count});
        ASSERT_EQ(part(mixed, a.stats, a.codes - a.stats), part(uniform, b.stats, b.codes - b.stats));
        ASSERT_EQ(part(mixed, a.codes, b.codes_used), part(uniform, b.codes, b.codes_used));
        ASSERT_EQ(part(mixed, a.mask, a.total - a.mask), part(uniform, b.mask, b.total - b.mask));
      }
    }
  }
}

/// The rule of format.md, section 2, one segment after the other.
std::vector<int> granted(const Table& table, std::int64_t run, std::int64_t capacity, int most) {
  const auto words = [run](int bits) { return (run * bits + 31) / 32; };
  std::vector<int> result;
  std::int64_t left = capacity;
  bool all_granted = true;
  const auto count = static_cast<std::int64_t>(table.bits.size());
  for (std::int64_t s = 0; s < count; ++s) {
    const int asked = std::clamp(table.of(static_cast<std::size_t>(s)), 1, most);
    // Behind the first segment that does not get what it asks for, all have room for 1 bit and no more.
    const std::int64_t room = all_granted ? left - (count - 1 - s) * words(1) : words(1);
    int bits = 1;
    while (bits < asked && words(bits + 1) <= room) ++bits;
    all_granted = all_granted && words(asked) <= room;
    left -= words(bits);
    result.push_back(bits);
  }
  return result;
}

Table hostile_table(std::int64_t count, std::int64_t total, std::uint64_t seed) {
  constexpr std::array kValues{0, 1, 2, 3, 4, 5, 8, 9, 200, 255};
  Random random(seed);
  Table table{{}, {count, total}};
  for (std::int64_t s = 0; s < count; ++s) {
    table.bits.push_back(static_cast<std::byte>(kValues[static_cast<std::size_t>(random.below(kValues.size()))]));
  }
  return table;
}

/// Asserts that words of the codes that are no segment's are 0. `run` codes are in each segment.
void expect_zeros_elsewhere(const Bytes& encoded, const format::Sections& sections, std::int64_t run) {
  std::vector<bool> used(static_cast<std::size_t>(sections.codes_used / 4));
  for (std::int64_t s = 0; s < sections.table_used; ++s) {
    const auto start = static_cast<std::int64_t>(word(encoded, sections.starts + 4 * s));
    const std::int64_t words = (run * std::to_integer<int>(encoded[static_cast<std::size_t>(s)]) + 31) / 32;
    for (std::int64_t i = start; i < start + words; ++i) {
      ASSERT_FALSE(used.at(static_cast<std::size_t>(i))) << "word " << i << " has two owners";
      used[static_cast<std::size_t>(i)] = true;
    }
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    ASSERT_TRUE(used[i] || word(encoded, sections.codes + 4 * static_cast<std::int64_t>(i)) == 0) << "word " << i;
  }
}

TEST_P(SegmentBits, a_hostile_table_is_clamped_by_the_documented_rule) {
  Harness harness(device());
  for (const CodecSpec& spec : mixed_variants()) {
    const int most = most_bits(spec);
    for (const Cut& cut : cuts(group_of(spec))) {
      for (const std::int64_t total : {cut.count, 2 * cut.count + 1, 3 * cut.count, cut.count * most}) {
        SCOPED_TRACE(describe(spec, DType::f16, cut.length) + ", total " + std::to_string(total));
        if (total > cut.count * most) continue;
        const Table table = hostile_table(cut.count, total, 204);
        const format::Sections sections = sections_of(spec, cut.length * cut.count, table.segments);
        const std::int64_t run = std::holds_alternative<Affine>(spec)
                                     ? cut.length
                                     : format::ceil_div(cut.length, group_of(spec)) * group_of(spec);
        const std::vector<int> wanted = granted(table, run, sections.codes_used / 4, most);
        const Tensor src = dense(DType::f16, sample(spec, DType::f16, cut.length * cut.count, 205));
        const Bytes encoded = harness.encode(spec, src, table.call());
        for (std::size_t s = 0; s < wanted.size(); ++s) {
          ASSERT_EQ(std::to_integer<int>(encoded[s]), wanted[s]) << "segment " << s;
        }
        ASSERT_TRUE(encoded == harness.encode(spec, src, table.call(0x5A))) << "a byte was not written";
        expect_zeros_elsewhere(encoded, sections, run);
        // Asking for what was granted changes nothing.
        const Table again{part(encoded, 0, cut.count), table.segments};
        const format::Sections s = sections;
        const Bytes same = harness.encode(spec, src, again.call());
        ASSERT_EQ(part(same, 0, s.table_used), part(encoded, 0, s.table_used));
        ASSERT_EQ(part(same, s.stats, s.stats_used), part(encoded, s.stats, s.stats_used));
      }
    }
  }
}

TEST_P(SegmentBits, random_bytes_decode_to_something_and_depend_on_nothing_outside) {
  Harness harness(device());
  for (const CodecSpec& spec : mixed_variants()) {
    for (const Cut& cut : cuts(group_of(spec))) {
      for (const std::int64_t total : {cut.count, 2 * cut.count}) {
        SCOPED_TRACE(describe(spec, DType::f32, cut.length) + ", total " + std::to_string(total));
        const Segments segments{cut.count, total};
        const std::int64_t elems = cut.length * cut.count;
        Bytes bytes = random_bytes(encoded_bytes(spec, DType::f32, elems, segments), 206);
        const format::Sections sections = sections_of(spec, elems, segments);
        for (std::int64_t s = 0; s < cut.count; s += 2) {  // half of the starts inside, so that codes are read there
          const std::uint32_t start =
              word(bytes, sections.starts + 4 * s) % static_cast<std::uint32_t>(sections.codes_used / 4);
          std::memcpy(bytes.data() + sections.starts + 4 * s, &start, sizeof start);
        }
        const Bytes once = harness.decode(spec, bytes, DType::f32, line(elems), {.segments = segments, .fill = 0xA5});
        ASSERT_TRUE(once == harness.decode(spec, bytes, DType::f32, line(elems), {.segments = segments, .fill = 0x5A}));
      }
    }
  }
}

TEST_P(SegmentBits, the_mean_over_seeds_is_the_value_at_every_width) {
  constexpr std::int64_t kSeeds = 4096;
  constexpr std::int64_t kLength = 37;
  for (const CodecSpec& spec : mixed_variants()) {
    if (!traits(spec).unbiased) continue;
    SCOPED_TRACE(to_string(spec));
    Table table{{}, {most_bits(spec), 0}};
    for (int bits = 1; bits <= most_bits(spec); ++bits) table.bits.push_back(static_cast<std::byte>(bits));
    table.segments.total_bits = most_bits(spec) * (most_bits(spec) + 1) / 2;
    const Values x = stored(DType::f32, shared_component(kLength * most_bits(spec), 207));
    MomentSums sums;
    decode_many(
        device(), spec, dense(DType::f32, x), DType::f32, kSeeds,
        [&](const std::vector<double>& draw) { sums.add(draw); }, table.segments, table.bits);
    const Moments got = sums.result();
    const auto [lo, hi] = std::minmax_element(x.begin(), x.end());
    const double greatest = std::max(std::abs(*lo), std::abs(*hi));
    // Transforms on CUDA are in 16-bit arithmetic, whose rounding may be a bias: format.md, section 7.
    const bool rough = device().kind == DeviceKind::cuda && std::holds_alternative<Rotated>(spec);
    const double rounding = (rough ? roundoff(DType::bf16) / 4 : 0x1p-20) * greatest;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double levels = std::pow(2.0, static_cast<double>(i / kLength + 1)) - 1.0;
      const double step = std::holds_alternative<Affine>(spec) ? (*hi - *lo) / levels + 0x1p-7 * std::abs(*lo) : 0.0;
      const double allowed = 5.0 * std::sqrt(got.variance[i] / kSeeds) + step / 512 + rounding;
      ASSERT_NEAR(got.mean[i], x[i], allowed) << "element " << i;
    }
  }
}

TEST_P(SegmentBits, strided_tensors_have_the_bytes_of_dense_ones) {
  Harness harness(device());
  const Shape gapped = strided({20, 512}, {520, 1});
  for (const CodecSpec& spec : mixed_variants()) {
    for (const std::int64_t count : {20, 40, 10}) {
      SCOPED_TRACE(to_string(spec) + " in " + std::to_string(count) + " segments");
      const Table table = random_table(count, most_bits(spec), 208);
      const Tensor src{DType::bf16, gapped, sample(spec, DType::bf16, extent(gapped), 209)};
      const Tensor packed = dense(DType::bf16, gather(DType::bf16, src.memory, memory_order(gapped)));
      const Bytes encoded = harness.encode(spec, src, table.call());
      ASSERT_TRUE(encoded == harness.encode(spec, packed, table.call()));
      const Bytes spread = harness.decode(spec, encoded, DType::bf16, gapped, table.call());
      ASSERT_TRUE(gather(DType::bf16, spread, memory_order(gapped)) ==
                  harness.decode(spec, encoded, DType::bf16, line(20 * 512), table.call()));
    }
  }
}

TEST_P(SegmentBits, a_hundred_thousand_segments_have_their_places) {
  Harness harness(device());
  const Cut cut{7, 100'003};
  for (const CodecSpec& spec : {CodecSpec(Affine{Bits(2), Rounding::nearest, GroupSize(32)}), CodecSpec(Rotated{})}) {
    SCOPED_TRACE(to_string(spec));
    check_pieces(harness, spec, DType::bf16, cut, random_table(cut.count, most_bits(spec), 210));
  }
}

TEST_P(SegmentBits, a_mask_plane_comes_back_alone) {
  Harness harness(device());
  const Rotated spec{Bits(2), GroupSize(128), StatsType::bf16, true};
  const Table table = random_table(9, 4, 211);
  const Values x = stored(DType::f16, relu(9 * 333, 212));
  const Bytes encoded = harness.encode(spec, dense(DType::f16, x), table.call());
  const Bytes mask = harness.decode(spec, encoded, DType::boolean, line(9 * 333), table.call());
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(std::to_integer<int>(mask[i]), x[i] != 0.0 ? 1 : 0);
}

TEST_P(CpuSegmentBits, threads_give_the_bytes_and_values_of_one_thread) {
  Harness alone(device());
  ThreadExecutor executor(3);
  Harness together(device(), executor);
  for (const CodecSpec& spec : mixed_variants()) {
    for (const Cut& cut : {Cut{667, 300}, Cut{50'000, 4}}) {
      SCOPED_TRACE(describe(spec, DType::f32, cut.length));
      const Table table = random_table(cut.count, most_bits(spec), 213);
      const Tensor src = dense(DType::f32, sample(spec, DType::f32, cut.length * cut.count, 214));
      const std::int64_t before = executor.tasks();
      const Bytes encoded = together.encode(spec, src, table.call());
      ASSERT_GT(executor.tasks(), before + 1) << "the work was not divided";
      ASSERT_TRUE(encoded == alone.encode(spec, src, table.call()));
      ASSERT_TRUE(together.decode(spec, encoded, DType::f32, src.shape, table.call()) ==
                  alone.decode(spec, encoded, DType::f32, src.shape, table.call()));
    }
  }
}

}  // namespace
}  // namespace actzip::testing
