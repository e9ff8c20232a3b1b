#include "data/jpeg.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "made_up.hpp"

namespace actzip::data {
namespace {

using test::as_jpeg;
using test::JpegColours;
using test::smooth_image;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

double worst_difference(const Image& a, const Image& b) {
  EXPECT_EQ(a.rgb.size(), b.rgb.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < a.rgb.size(); ++i) worst = std::max(worst, std::abs(double{1} * a.rgb[i] - b.rgb[i]));
  return worst;
}

TEST(JpegTest, gives_back_what_was_written) {
  const Image image = smooth_image(37, 51);
  const Image found = decode_jpeg(as_jpeg(image), {}, "x");
  EXPECT_EQ(found.height, 37);
  EXPECT_EQ(found.width, 51);
  EXPECT_LE(worst_difference(image, found), 6.0);
}

TEST(JpegTest, ink_becomes_light) {
  const Image image = smooth_image(32, 32);
  EXPECT_LE(worst_difference(image, decode_jpeg(as_jpeg(image, JpegColours::cmyk), {}, "x")), 6.0);
}

TEST(JpegTest, grey_becomes_three_equal_channels) {
  const Image found = decode_jpeg(as_jpeg(smooth_image(16, 16), JpegColours::grey), {}, "x");
  ASSERT_EQ(found.rgb.size(), 3U * 16 * 16);
  for (std::size_t i = 0; i < found.rgb.size(); i += 3) {
    EXPECT_EQ(found.rgb[i], found.rgb[i + 1]);
    EXPECT_EQ(found.rgb[i], found.rgb[i + 2]);
  }
}

TEST(JpegTest, is_decoded_smaller_where_that_is_large_enough) {
  const std::vector<std::uint8_t> jpeg = as_jpeg(smooth_image(400, 600));
  const auto height_for = [&](int at_least) { return decode_jpeg(jpeg, {at_least}, "x").height; };
  EXPECT_EQ(height_for(DecodeHint::kFullSize), 400);
  EXPECT_EQ(height_for(201), 400);
  EXPECT_EQ(height_for(200), 200);
  EXPECT_EQ(height_for(101), 200);
  EXPECT_EQ(height_for(100), 100);
  EXPECT_EQ(height_for(50), 50);
  EXPECT_EQ(height_for(1), 50);
  EXPECT_EQ(decode_jpeg(jpeg, {100}, "x").width, 150);
}

TEST(JpegTest, what_was_cut_anywhere_is_damaged_and_named) {
  const std::vector<std::uint8_t> jpeg = as_jpeg(smooth_image(24, 24));
  for (std::size_t length = 0; length < jpeg.size(); ++length) {
    const std::string message =
        test::thrown_by<DamagedRecord>([&] { (void)decode_jpeg(Bytes(jpeg).first(length), {}, "folder/cut.jpg"); });
    EXPECT_THAT(message, StartsWith("folder/cut.jpg: not a readable JPEG: ")) << length << " bytes";
  }
}

TEST(JpegTest, any_wrong_byte_gives_an_image_or_damage_and_nothing_worse) {
  const std::vector<std::uint8_t> jpeg = as_jpeg(smooth_image(16, 16));
  for (std::size_t at = 0; at < jpeg.size(); ++at) {
    std::vector<std::uint8_t> wrong = jpeg;
    wrong[at] ^= 0xffU;
    try {
      EXPECT_FALSE(decode_jpeg(wrong, {}, "x").rgb.empty());
    } catch (const DamagedRecord& damaged) {
      EXPECT_EQ(damaged.name(), "x");
    }
  }
}

TEST(JpegTest, a_head_does_not_ask_for_more_than_its_bytes_can_fill) {
  std::vector<std::uint8_t> jpeg = as_jpeg(smooth_image(24, 24));
  constexpr std::array<std::uint8_t, 5> kFrame = {0xff, 0xc0, 0, 17, 8};
  constexpr std::array<std::uint8_t, 4> kSize = {0x3e, 0x80, 0x3e, 0x80};  // 16,000 x 16,000
  const auto found = std::ranges::search(jpeg, kFrame);
  ASSERT_FALSE(found.empty());
  std::ranges::copy(kSize, found.end());
  EXPECT_THAT(test::thrown_by<DamagedRecord>([&] { (void)decode_jpeg(jpeg, {}, "x"); }),
              AllOf(HasSubstr("16000 x 16000 pixels in "), HasSubstr("bytes (allowed: ")));
}

TEST(JpegTest, a_large_image_of_one_colour_is_read) {
  Image image{2000, 3000, std::vector<std::uint8_t>(std::size_t{3} * 2000 * 3000, 77)};
  for (const bool progressive : {false, true}) {
    const std::vector<std::uint8_t> jpeg = as_jpeg(image, JpegColours::grey, {1, 1, progressive});
    EXPECT_EQ(decode_jpeg(jpeg, {}, "x").width, 3000) << jpeg.size() << " bytes";
  }
}

TEST(JpegTest, scans_without_end_are_refused) {
  const std::vector<std::uint8_t> jpeg = as_jpeg(smooth_image(24, 24), JpegColours::rgb, {2, 2, /*progressive=*/true});
  constexpr std::array<std::uint8_t, 2> kScan = {0xff, 0xda};
  const auto first = std::search(jpeg.begin(), jpeg.end(), kScan.begin(), kScan.end());
  const auto second = std::search(first + 2, jpeg.end(), kScan.begin(), kScan.end());
  ASSERT_NE(second, jpeg.end());
  std::vector<std::uint8_t> many(jpeg.begin(), first);
  for (int i = 0; i < 300; ++i) many.insert(many.end(), first, second);
  many.insert(many.end(), second, jpeg.end());
  EXPECT_EQ(test::thrown_by<DamagedRecord>([&] { (void)decode_jpeg(many, {}, "x"); }), "x: more than 200 scans");
}

/// That each region of many has the pixels that it has in the whole image.
void check_parts(const std::vector<std::uint8_t>& jpeg, int at_least) {
  const Image whole = decode_jpeg(jpeg, {at_least}, "x");
  Draws draws(0, 1, 0);
  const auto length_of = [&](int side) { return 1 + static_cast<int>(draws.below(static_cast<std::uint32_t>(side))); };
  for (int i = 0; i < 60; ++i) {
    Region wanted{0, 0, length_of(whole.height), length_of(whole.width)};
    wanted.top = length_of(whole.height - wanted.height + 1) - 1;
    wanted.left = length_of(whole.width - wanted.width + 1) - 1;
    const auto part = [&](int height, int width) {
      EXPECT_TRUE(height == whole.height && width == whole.width);
      return wanted;
    };
    const Image found = decode_jpeg(jpeg, {at_least, part}, "x");
    const Region held = found.held();
    ASSERT_EQ(found.rgb.size(), 3U * static_cast<std::size_t>(held.height * held.width));
    ASSERT_TRUE(held.top <= wanted.top && held.left <= wanted.left);
    ASSERT_GE(held.top + held.height, wanted.top + wanted.height);
    ASSERT_GE(held.left + held.width, wanted.left + wanted.width);
    const auto row = [&](const Image& image, int y) {
      const Region& in = image.held();
      const auto begin = image.rgb.begin() + 3 * ((y - in.top) * in.width + wanted.left - in.left);
      return std::vector<std::uint8_t>(begin, begin + 3 * wanted.width);
    };
    for (int y = wanted.top; y < wanted.top + wanted.height; ++y) {
      ASSERT_EQ(row(found, y), row(whole, y)) << "row " << y << " of " << wanted.height << " x " << wanted.width
                                              << " from " << wanted.top << ", " << wanted.left;
    }
  }
}

TEST(JpegTest, a_part_has_the_pixels_of_the_whole) {
  const Image image = test::noisy_image(203, 171);
  for (const int at_least : {DecodeHint::kFullSize, 85, 42, 21}) {
    for (const bool progressive : {false, true}) {
      for (const auto& [columns, rows] : {std::pair{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}}) {
        SCOPED_TRACE(testing::Message() << at_least << (progressive ? ", progressive, " : ", ") << columns << rows);
        check_parts(as_jpeg(image, JpegColours::rgb, {columns, rows, progressive}), at_least);
      }
    }
    check_parts(as_jpeg(image, JpegColours::grey), at_least);
    check_parts(as_jpeg(image, JpegColours::cmyk), at_least);
  }
}

TEST(JpegTest, a_part_is_less_than_the_whole) {
  const auto part = [](int /*height*/, int /*width*/) { return Region{100, 200, 50, 60}; };
  const Region held = decode_jpeg(as_jpeg(smooth_image(400, 600)), {DecodeHint::kFullSize, part}, "x").held();
  EXPECT_LE(held.height, 50 + 3 * 16);
  EXPECT_LE(held.width, 60 + 4 * 16);
}

TEST(JpegTest, damage_below_a_part_goes_unseen_but_not_that_the_file_was_cut) {
  const auto top_rows = [](int /*height*/, int width) { return Region{0, 0, 16, width}; };
  const auto all_rows = [](int height, int width) { return Region{0, 0, height, width}; };
  const std::vector<std::uint8_t> jpeg = as_jpeg(test::noisy_image(256, 256));
  std::vector<std::uint8_t> cut(jpeg.begin(), jpeg.end() - static_cast<std::ptrdiff_t>(jpeg.size() / 4));
  EXPECT_THROW((void)decode_jpeg(cut, {DecodeHint::kFullSize, top_rows}, "x"), DamagedRecord);
  cut.insert(cut.end(), {0xff, 0xd9});  // as if it ended there
  EXPECT_FALSE(decode_jpeg(cut, {DecodeHint::kFullSize, top_rows}, "x").rgb.empty());
  EXPECT_THROW((void)decode_jpeg(cut, {DecodeHint::kFullSize, all_rows}, "x"), DamagedRecord);
  EXPECT_THROW((void)decode_jpeg(cut, {}, "x"), DamagedRecord);
}

TEST(JpegTest, size_is_read_from_the_head_alone) {
  const std::vector<std::uint8_t> jpeg = as_jpeg(smooth_image(48, 20));
  const JpegSize size = jpeg_size(Bytes(jpeg).first(jpeg.size() - 50), "x");
  EXPECT_EQ(size.height, 48);
  EXPECT_EQ(size.width, 20);
  const std::string png = "\x89PNG\r\n";
  EXPECT_THAT(test::thrown_by<DamagedRecord>(
                  [&] { (void)jpeg_size({reinterpret_cast<const std::uint8_t*>(png.data()), png.size()}, "a.JPEG"); }),
              HasSubstr("Not a JPEG file"));
}

}  // namespace
}  // namespace actzip::data
