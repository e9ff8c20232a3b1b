#include "data/transforms.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "data/jpeg.hpp"
#include "data/resample.hpp"
#include "made_up.hpp"

namespace actzip::data {
namespace {

using test::smooth_image;
using test::thrown_by;
using ::testing::HasSubstr;

std::vector<float> applied(const ImageTransform& transform, const Image& image, const Draws& draws) {
  const ImagePipeline pipeline(transform);
  std::vector<float> out(pipeline.image_elems());
  pipeline.apply(image, draws, out);
  return out;
}

/// Every pixel another one: red is its column, green its row.
Image numbered_image(int side) {
  Image image{side, side, {}};
  for (int y = 0; y < side; ++y) {
    for (int x = 0; x < side; ++x) {
      for (const int value : {x + 1, y + 1, 7}) image.rgb.push_back(static_cast<std::uint8_t>(value));
    }
  }
  return image;
}

constexpr std::array<float, 3> kByte = {1.0F / 255, 1.0F / 255,
                                        1.0F / 255};  // as deviation: bytes come out as they are

TEST(TransformsTest, normalise_and_nothing_else) {
  const Image image = numbered_image(32);
  const ImageTransform transform = cifar10_transform(Split::validation);
  const std::vector<float> out = applied(transform, image, {0, 0, 0});
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t i = 0; i < 1024; ++i) {
      const double value = (image.rgb[3 * i + c] / 255.0 - transform.mean[c]) / transform.deviation[c];
      ASSERT_NEAR(out[c * 1024 + i], value, 1e-6);
    }
  }
}

/// For each of many draws: where the window begins, and whether it was flipped; all pixels as they must be then.
void check_padded(Crop crop, int (*outside)(int at, int side)) {
  constexpr int kSide = 14;  // some pixels four at a time, and some alone
  const Image image = numbered_image(kSide);
  const ImageTransform transform{.crop = crop, .size = kSide, .padding = 3, .flip = true, .deviation = kByte};
  std::set<int> seen;
  for (std::uint64_t record = 0; record < 2000; ++record) {
    const std::vector<float> out = applied(transform, image, {1, 2, record});
    const auto at = [&](int c, int y, int x) {
      return static_cast<int>(std::lround(out[static_cast<std::size_t>((c * kSide + y) * kSide + x)]));
    };
    const int middle = kSide / 2;  // never outside
    const bool flipped = at(0, middle, middle) < at(0, middle, middle - 1);
    const int top = at(1, middle, middle) - 1 - middle;
    const int left = at(0, middle, flipped ? kSide - 1 - middle : middle) - 1 - middle;
    ASSERT_TRUE(std::abs(top) <= 3 && std::abs(left) <= 3);
    seen.insert(((top + 3) * 7 + left + 3) * 2 + (flipped ? 1 : 0));
    for (int y = 0; y < kSide; ++y) {
      for (int x = 0; x < kSide; ++x) {
        const int row = top + y;
        const int column = left + (flipped ? kSide - 1 - x : x);
        const int source_row = outside(row, kSide);
        const int source_column = outside(column, kSide);
        const bool black = source_row < 0 || source_column < 0;
        ASSERT_EQ(at(0, y, x), black ? 0 : source_column + 1);
        ASSERT_EQ(at(1, y, x), black ? 0 : source_row + 1);
        ASSERT_EQ(at(2, y, x), black ? 0 : 7);
      }
    }
  }
  EXPECT_EQ(seen.size(), 7U * 7U * 2U);  // every place, and both ways round
}

TEST(TransformsTest, zero_padded_crop_has_black_edges) {
  check_padded(Crop::zero_padded, [](int at, int side) { return at >= 0 && at < side ? at : -1; });
}

TEST(TransformsTest, reflect_padded_crop_mirrors_without_the_edge) {
  check_padded(Crop::reflect_padded, [](int at, int side) {
    return at < 0 ? -at : at < side ? at : 2 * side - 2 - at;
  });
}

TEST(TransformsTest, centre_crop_takes_the_middle_of_the_scaled_image) {
  // Along x red grows by 1 for each pixel of 200; scaled to 100 and cut to 80, it goes from 20 to 180.
  Image image{200, 240, {}};
  for (int y = 0; y < 200; ++y) {
    for (int x = 0; x < 240; ++x) {
      for (const int value : {x, y, 9}) image.rgb.push_back(static_cast<std::uint8_t>(value));
    }
  }
  const ImageTransform transform{.crop = Crop::centre, .size = 80, .resize = 100, .deviation = kByte};
  const std::vector<float> out = applied(transform, image, {0, 0, 0});
  for (std::size_t y = 0; y < 80; ++y) {
    for (std::size_t x = 0; x < 80; ++x) {
      ASSERT_NEAR(out[y * 80 + x], 40.5 + 2.0 * static_cast<double>(x), 1e-3);
      ASSERT_NEAR(out[6400 + y * 80 + x], 20.5 + 2.0 * static_cast<double>(y), 1e-3);
    }
  }
}

TEST(TransformsTest, random_resized_crop_has_the_areas_and_shapes_it_should) {
  // Red is the column and green the row in a grid, so the first and last pixels tell the window.
  Image image{250, 250, {}};
  for (int y = 0; y < 250; ++y) {
    for (int x = 0; x < 250; ++x) {
      for (const int value : {x, y, 9}) image.rgb.push_back(static_cast<std::uint8_t>(value));
    }
  }
  constexpr std::size_t kSide = 20;
  const ImageTransform transform{.crop = Crop::random_resized, .size = kSide, .deviation = kByte};
  double sum = 0.0;
  constexpr int kDraws = 2000;
  for (std::uint64_t record = 0; record < kDraws; ++record) {
    const std::vector<float> out = applied(transform, image, {3, 0, record});
    const double scale = kSide - 5.0;  // pixels near the edge see less than their share
    const double width = (out[kSide - 3] - out[2]) * kSide / scale;
    const double height = (out[kSide * kSide + (kSide - 3) * kSide] - out[kSide * kSide + 2 * kSide]) * kSide / scale;
    const double area = width * height / (250.0 * 250.0);
    ASSERT_GE(area, 0.07);
    ASSERT_LE(area, 1.01);
    ASSERT_LE(std::abs(std::log(width / height)), std::log(4.0 / 3.0) + 0.05);
    sum += area;
  }
  EXPECT_NEAR(sum / kDraws, 0.54, 0.02);
}

TEST(TransformsTest, decoding_smaller_never_takes_pixels_from_a_crop) {
  const ImageTransform transform = imagenet_transform(Split::train, 64);
  int least = std::numeric_limits<int>::max();
  for (std::uint64_t record = 0; record < 500; ++record) {
    const Draws draws(0, 0, record);
    const int shorter = ImagePipeline(transform).decode_hint(draws).at_least;
    ASSERT_GE(shorter, 64);
    least = std::min(least, shorter);
    // An image of just that size, with columns as red: neighbours in the crop are at least one column apart.
    Image image{shorter, shorter, {}};
    for (int y = 0; y < shorter; ++y) {
      for (int x = 0; x < shorter; ++x) {
        for (const int value : {x * 255 / shorter, y * 255 / shorter, 0}) {
          image.rgb.push_back(static_cast<std::uint8_t>(value));
        }
      }
    }
    ImageTransform plain = transform;
    plain.flip = false;
    plain.mean = {};
    plain.deviation = kByte;
    const std::vector<float> out = applied(plain, image, draws);
    const double columns = double{out[32 * 64 + 59] - out[32 * 64 + 4]} * shorter / 255.0 * 64.0 / 55.0;
    ASSERT_GE(columns, 64.0 - 3.0);
  }
  EXPECT_LE(least, 76);  // nor asks for more than it needs: 64 * sqrt(4 / 3) for a window of nearly all
}

TEST(TransformsTest, a_crop_of_the_part_that_it_needs_is_that_of_the_whole) {
  const std::vector<std::uint8_t> jpeg = test::as_jpeg(test::noisy_image(300, 260));
  const ImagePipeline pipeline(imagenet_transform(Split::train, 48));
  std::vector<float> expected(pipeline.image_elems());
  std::vector<float> found(pipeline.image_elems());
  std::size_t pixels = 0;
  std::size_t all_pixels = 0;
  for (std::uint64_t record = 0; record < 200; ++record) {
    const Draws draws(0, 0, record);
    DecodeHint hint = pipeline.decode_hint(draws);
    const Image part = decode_jpeg(jpeg, hint, "x");
    hint.part = nullptr;
    const Image whole = decode_jpeg(jpeg, hint, "x");
    pipeline.apply(part, draws, found);
    pipeline.apply(whole, draws, expected);
    ASSERT_EQ(found, expected) << record;
    pixels += part.rgb.size();
    all_pixels += whole.rgb.size();
  }
  EXPECT_LT(static_cast<double>(pixels), 0.85 * static_cast<double>(all_pixels));
}

TEST(TransformsTest, validation_decodes_all) {
  EXPECT_FALSE(ImagePipeline(imagenet_transform(Split::validation)).decode_hint({0, 0, 0}).part);
}

TEST(TransformsTest, flip_mirrors_a_scaled_image) {
  const Image image = smooth_image(40, 60);
  std::vector<float> plain(3U * 256);
  std::vector<float> flipped(plain.size());
  const Window window{3.0, 5.0, 30.0, 40.0};
  resample(image, window, 16, false, PixelNormalization{}, plain);
  resample(image, window, 16, true, PixelNormalization{}, flipped);
  for (std::size_t row = 0; row < 48; ++row) {
    for (std::size_t x = 0; x < 16; ++x) ASSERT_EQ(plain[row * 16 + x], flipped[row * 16 + 15 - x]);
  }
}

TEST(ResampleTest, keeps_a_constant_and_the_mean) {
  Image image{33, 47, std::vector<std::uint8_t>(33U * 47 * 3, 77)};
  std::vector<float> out(3U * 64 * 64);
  for (const Window& window : {Window{0, 0, 33, 47}, Window{5.5, 7.25, 3.0, 2.0}, Window{-2, -2, 40, 60}}) {
    resample(image, window, 64, false, PixelNormalization{}, out);
    for (const float value : out) ASSERT_NEAR(value, 77.0F, 1e-3F);
  }
  const Image smooth = smooth_image(64, 64);
  std::vector<float> half(3U * 32 * 32);
  resample(smooth, {0, 0, 64, 64}, 32, false, PixelNormalization{}, half);
  double before = 0.0;
  double after = 0.0;
  for (const std::uint8_t value : smooth.rgb) before += value / (64.0 * 64.0 * 3);
  for (const float value : half) after += value / (32.0 * 32.0 * 3);
  EXPECT_NEAR(before, after, 0.2);
}

TEST(ResampleTest, what_was_not_decoded_is_not_read) {
  Image image{40, 60, std::vector<std::uint8_t>(3U * 20 * 30), Region{10, 15, 20, 30}};
  std::vector<float> out(3U * 8 * 8);
  resample(image, {12, 18, 16, 24}, 8, false, PixelNormalization{}, out);
  EXPECT_EQ(thrown_by<DataError>([&] { resample(image, {12, 18, 16, 40}, 8, false, PixelNormalization{}, out); }),
            "44 x 19 pixels from column 16 and row 11 of an image (decoded: 30 x 20 from 15 and 10)");
}

TEST(TransformsTest, wrong_fields_say_what_is_allowed) {
  EXPECT_EQ(thrown_by<DataError>([] { ImagePipeline pipeline({.size = 0}); }), "image size 0 (allowed: 1 to 16384)");
  EXPECT_THAT(
      thrown_by<DataError>([] { ImagePipeline pipeline({.crop = Crop::zero_padded, .size = 4, .padding = 4}); }),
      HasSubstr("padding 4 (allowed: 0 to 3"));
  EXPECT_THAT(thrown_by<DataError>([] { ImagePipeline pipeline({.crop = Crop::centre, .size = 224, .resize = 200}); }),
              HasSubstr("shorter side 200 for a crop of 224"));
  EXPECT_THAT(thrown_by<DataError>([] { ImagePipeline pipeline({.deviation = {1.0F, 0.0F, 1.0F}}); }),
              HasSubstr("deviation 0"));
  EXPECT_THAT(thrown_by<DataError>([] { (void)applied({.size = 32}, smooth_image(32, 31), {0, 0, 0}); }),
              HasSubstr("an image of 31 x 32 (expected: 32 x 32"));
}

TEST(EpochOrderTest, is_a_permutation_and_another_for_each_seed_and_epoch) {
  const std::vector<std::size_t> order = epoch_order(1000, 1, 0);
  EXPECT_EQ(std::set<std::size_t>(order.begin(), order.end()).size(), 1000U);
  EXPECT_EQ(order, epoch_order(1000, 1, 0));
  EXPECT_NE(order, epoch_order(1000, 1, 1));
  EXPECT_NE(order, epoch_order(1000, 2, 0));
  std::size_t fixed = 0;
  for (std::size_t i = 0; i < order.size(); ++i) fixed += order[i] == i ? 1 : 0;
  EXPECT_LT(fixed, 8U);  // 1 is expected
}

}  // namespace
}  // namespace actzip::data
