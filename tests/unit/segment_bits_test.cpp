#include "format/segment_bits.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace actzip::format {
namespace {

constexpr std::array<std::int64_t, 9> kRuns{1, 7, 16, 31, 32, 33, 100, 256, 1000};

TEST(SegmentBits, TheCapacityHoldsEveryTableOfTheTotal) {
  for (const std::int64_t run : kRuns) {
    for (int a = 1; a <= 8; ++a) {
      for (int b = 1; b <= 8; ++b) {
        for (int c = 1; c <= 8; ++c) {
          const SegmentRuns runs{3, run, segment_capacity(3, run, a + b + c), 8};
          ASSERT_LE(runs.words(a) + runs.words(b) + runs.words(c), runs.capacity) << run;
          const SegmentRun first = granted_run(runs, 0, 0, a);
          const SegmentRun second = granted_run(runs, 1, runs.extra(a), b);
          const SegmentRun third = granted_run(runs, 2, runs.extra(a) + runs.extra(b), c);
          ASSERT_EQ((std::array{first.bits, second.bits, third.bits}), (std::array{a, b, c})) << run;
          ASSERT_EQ(first.start, 0);
          ASSERT_EQ(second.start, runs.words(a));
          ASSERT_EQ(third.start, runs.words(a) + runs.words(b));
        }
      }
    }
  }
}

TEST(SegmentBits, TheCapacityIsExactForWholeWordsAndCloseForOthers) {
  EXPECT_EQ(segment_capacity(10, 1024, 15), 15 * 32);
  EXPECT_EQ(segment_capacity(10, 49, 20), (49 * 20 + 310) / 32);  // 40 words would do for 2 bits each, 40 it is
  EXPECT_EQ(segment_capacity(10, 49, 20), 40);
  EXPECT_EQ(segment_capacity(1000, 1, 8000), 8000 / 32 + 31 * 1000 / 32);
}

TEST(SegmentBits, WhatIsAskedForIsClampedToWhatTheCodecHas) {
  const SegmentRuns runs{2, 64, segment_capacity(2, 64, 8), 4};
  EXPECT_EQ(granted_run(runs, 0, 0, 0).bits, 1);
  EXPECT_EQ(granted_run(runs, 0, 0, 200).bits, 4);
  EXPECT_EQ(granted_run(runs, 1, runs.extra(200), 5).bits, 4);
}

TEST(SegmentBits, BeyondTheTotalTheFirstGetWhatTheyAskFor) {
  const SegmentRuns runs{4, 64, segment_capacity(4, 64, 8),
                         4};  // 8 bits in all: 4 go to everybody, 4 to who comes first
  std::int64_t extra = 0;
  std::array<SegmentRun, 4> got{};
  for (std::int64_t s = 0; s < 4; ++s) {
    got[static_cast<std::size_t>(s)] = granted_run(runs, s, extra, 3);
    extra += runs.extra(3);
  }
  EXPECT_EQ((std::array{got[0].bits, got[1].bits, got[2].bits, got[3].bits}), (std::array{3, 3, 1, 1}));
  EXPECT_EQ((std::array{got[0].start, got[1].start, got[2].start, got[3].start}),
            (std::array<std::int64_t, 4>{0, 6, 12, 14}));
}

TEST(SegmentBits, RunsNeverOverlapNorLeaveTheSection) {
  for (const std::int64_t run : kRuns) {
    for (std::int64_t total = 5; total <= 40; ++total) {
      const SegmentRuns runs{5, run, segment_capacity(5, run, total), 8};
      for (int pattern = 0; pattern < 243; ++pattern) {
        std::int64_t extra = 0;
        std::int64_t end = 0;
        for (std::int64_t s = 0, rest = pattern; s < 5; ++s, rest /= 3) {
          const int asked = std::array{0, 3, 255}[static_cast<std::size_t>(rest % 3)];
          const SegmentRun got = granted_run(runs, s, extra, asked);
          ASSERT_GE(got.start, end) << run << ' ' << total << ' ' << pattern;
          ASSERT_GE(got.bits, 1);
          end = got.start + runs.words(got.bits);
          ASSERT_LE(end, runs.capacity) << run << ' ' << total << ' ' << pattern;
          extra += runs.extra(asked);
        }
      }
    }
  }
}

TEST(SegmentBits, StoredRunsStayInsideWhateverIsStored) {
  const SegmentRuns runs{3, 100, segment_capacity(3, 100, 5), 8};
  for (const std::int64_t start : {std::int64_t{0}, std::int64_t{5}, runs.capacity, std::int64_t{0xffffffff}}) {
    for (const int bits : {0, 1, 5, 8, 255}) {
      const SegmentRun got = stored_run(runs, start, bits);
      EXPECT_GE(got.start, 0);
      EXPECT_TRUE(got.bits >= 1 && got.bits <= 8);
      EXPECT_LE(got.start + runs.words(got.bits), runs.capacity) << start << ' ' << bits;
    }
  }
  EXPECT_EQ(stored_run(runs, 4, 3).start, 4);
  EXPECT_EQ(stored_run(runs, 4, 3).bits, 3);
}

}  // namespace
}  // namespace actzip::format
