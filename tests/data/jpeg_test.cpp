#include "data/jpeg.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "made_up.hpp"

namespace actzip::data {
namespace {

using test::as_jpeg;
using test::JpegColours;
using test::smooth_image;
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
