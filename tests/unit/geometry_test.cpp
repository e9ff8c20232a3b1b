#include <gtest/gtest.h>

#include <vector>

#include "actzip/registry.hpp"
#include "format/dual.hpp"

namespace actzip::format {
namespace {

/// A buffer as one would write it by hand: sections of runs of bits, padded as format.md, section 3, says.
class PlainBuffer {
 public:
  void add_bits(std::int64_t count) { bits_ += count; }
  void end_run() { bits_ = (bits_ + 31) / 32 * 32; }
  void end_section() {
    while (bits_ % 128 != 0) ++bits_;
  }
  [[nodiscard]] std::int64_t bytes() const { return bits_ / 8; }

 private:
  std::int64_t bits_ = 0;
};

/// What a grouped codec writes, one group after the other.
std::int64_t plain_grouped(std::int64_t elems, std::int64_t segments, std::int64_t group, StatsType stats, int bits,
                           bool keeps_padding, bool mask_plane) {
  PlainBuffer buffer;
  const std::int64_t length = elems / segments;
  for (std::int64_t s = 0; s < segments; ++s) {
    for (std::int64_t first = 0; first < length; first += group) buffer.add_bits(stats == StatsType::bf16 ? 32 : 64);
  }
  buffer.end_section();
  for (std::int64_t s = 0; s < segments; ++s) {
    for (std::int64_t first = 0; first < length; first += group) {
      const std::int64_t left = length - first;
      buffer.add_bits((keeps_padding || left > group ? group : left) * bits);
    }
    buffer.end_run();
  }
  buffer.end_section();
  for (std::int64_t s = 0; mask_plane && s < segments; ++s) {
    buffer.add_bits(length);
    buffer.end_run();
  }
  buffer.end_section();
  return buffer.bytes();
}

std::int64_t plain_flat(std::int64_t elems, int bits) {
  PlainBuffer buffer;
  buffer.add_bits(elems * bits);
  buffer.end_run();
  buffer.end_section();
  return buffer.bytes();
}

template <class Spec>
Sections sections_of(const Spec& spec, std::int64_t elems, std::int64_t segments = 1, DType dtype = DType::f32) {
  return sections(spec, geometry(spec, elems, Segments{segments}), dtype);
}

constexpr std::int64_t kLengths[] = {1, 7, 8, 9, 31, 32, 33, 127, 128, 129, 255, 256, 257, 1000, 65537};
constexpr std::int64_t kSegments[] = {1, 2, 3, 64};

TEST(Geometry, AffineSizesAreThePlainCount) {
  for (const std::int64_t length : kLengths) {
    for (const std::int64_t segments : kSegments) {
      for (int bits = 1; bits <= 8; ++bits) {
        for (const int group : {32, 64, 128, 256, 512, 1024}) {
          for (const StatsType stats : {StatsType::bf16, StatsType::f32}) {
            const Affine spec{.bits = Bits(bits), .group = GroupSize(group), .stats = stats};
            ASSERT_EQ(sections_of(spec, length * segments, segments).total,
                      plain_grouped(length * segments, segments, group, stats, bits, false, false))
                << to_string(CodecSpec(spec)) << " " << length << " * " << segments;
          }
        }
      }
    }
  }
}

TEST(Geometry, RotatedSizesAreThePlainCountWithPaddingAndMaskPlane) {
  for (const std::int64_t length : kLengths) {
    for (const std::int64_t segments : kSegments) {
      for (int bits = 1; bits <= 4; ++bits) {
        for (const int group : {128, 256}) {
          for (const bool mask : {false, true}) {
            const Rotated spec{.bits = Bits(bits), .group = GroupSize(group), .mask_plane = mask};
            ASSERT_EQ(sections_of(spec, length * segments, segments).total,
                      plain_grouped(length * segments, segments, group, spec.stats, bits, true, mask))
                << to_string(CodecSpec(spec)) << " " << length << " * " << segments;
          }
        }
      }
    }
  }
}

TEST(Geometry, CodecsWithoutGroupsHaveOneRunWhateverTheSegments) {
  for (const std::int64_t elems : kLengths) {
    EXPECT_EQ(sections_of(Mask{}, elems * 2, 2).total, plain_flat(elems * 2, 1));
    EXPECT_EQ(sections_of(Cast{}, elems * 2, 2).total, plain_flat(elems * 2, 16));
    EXPECT_EQ(sections_of(Copy{}, elems * 2, 2, DType::u8).total, plain_flat(elems * 2, 8));
    EXPECT_EQ(sections_of(Copy{}, elems * 2, 2, DType::i64).total, plain_flat(elems * 2, 64));
    for (const int bits : {1, 2, 4, 8, 16, 32}) {
      EXPECT_EQ(sections_of(Index{.bound = std::int64_t{1} << bits}, elems).total, plain_flat(elems, bits));
    }
  }
}

TEST(Geometry, NothingTakesNoBytes) {
  for (const CodecInfo& info : codecs()) {
    for (const CodecSpec& variant : info.variants) {
      EXPECT_EQ(std::visit([](const auto& spec) { return sections_of(spec, 0).total; }, variant), 0) << info.name;
    }
  }
}

TEST(Geometry, SectionsFollowEachOtherAtMultiplesOf16) {
  const Sections s = sections_of(Rotated{.bits = Bits(3), .mask_plane = true}, 3 * 1000, 3);
  EXPECT_EQ(s.stats_used, 3 * 4 * 4);
  EXPECT_EQ(s.codes, 48);
  EXPECT_EQ(s.code_words, 4 * 256 * 3 / 32);
  EXPECT_EQ(s.codes_used, 3 * s.code_words * 4);
  EXPECT_EQ(s.mask, s.codes + s.codes_used);
  EXPECT_EQ(s.mask_words, 32);
  EXPECT_EQ(s.mask_used, 3 * 32 * 4);
  EXPECT_EQ(s.total, s.mask + s.mask_used);
}

TEST(Geometry, GroupsCoverEveryElementOnceInOrder) {
  for (const std::int64_t length : {1, 31, 32, 33, 64, 100}) {
    for (const std::int64_t segments : kSegments) {
      const Geometry geometry(length * segments, segments, 32);
      std::int64_t next = 0;
      for (std::int64_t g = 0; g < geometry.groups(); ++g) {
        const GroupRange range = group_range(geometry, g);
        ASSERT_EQ(range.first, next);
        ASSERT_EQ(range.segment, next / length);
        ASSERT_EQ(range.number, (next % length) / 32);
        ASSERT_GE(range.count, 1);
        ASSERT_LE(range.count, 32);
        ASSERT_LE(range.first % length + range.count, length) << "a group stays inside its segment";
        next += range.count;
      }
      ASSERT_EQ(next, length * segments);
    }
  }
}

TEST(Geometry, FlatMeansThatGroupsIgnoreSegments) {
  EXPECT_TRUE(Geometry(100, 1, 32).flat());
  EXPECT_TRUE(Geometry(128, 2, 32).flat());
  EXPECT_FALSE(Geometry(100, 2, 32).flat());
}

TEST(Geometry, SizesBeyond32BitsAreRight) {
  const std::int64_t elems = (std::int64_t{1} << 40) + 1;
  EXPECT_EQ(sections_of(Affine{}, elems).total, align16((elems / 256 + 1) * 4) + align16((elems / 16 + 1) * 4));
  EXPECT_EQ(sections_of(Copy{}, elems, 1, DType::f64).total, align16(elems * 8));
}

}  // namespace
}  // namespace actzip::format
