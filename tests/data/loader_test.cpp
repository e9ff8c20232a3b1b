#include "data/loader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "made_up.hpp"

namespace actzip::data {
namespace {

using test::thrown_by;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// 2 x 2 pixels that say which record they are; some are damaged, one may fail for good.
class Records final : public ImageSource {
 public:
  explicit Records(std::size_t count, std::set<std::size_t> damaged = {})
      : count_(count), damaged_(std::move(damaged)) {}

  [[nodiscard]] std::size_t size() const override { return count_; }
  [[nodiscard]] std::int64_t classes() const override { return 10; }
  [[nodiscard]] std::string kind() const override { return "records"; }
  [[nodiscard]] std::string name_of(std::size_t index) const override { return "record " + std::to_string(index); }
  [[nodiscard]] Example read(std::size_t index, const DecodeHint& /*hint*/) const override {
    ++reads;
    if (index == fails_at) throw std::logic_error("no such luck");
    if (damaged_.contains(index)) throw DamagedRecord(name_of(index), "worms");
    // Later records first, so that threads overtake each other.
    std::this_thread::sleep_for(std::chrono::microseconds(index * 37 % 200));
    return {{2, 2, std::vector<std::uint8_t>(12, static_cast<std::uint8_t>(index))},
            static_cast<std::int64_t>(index % 10)};
  }

  mutable std::atomic<std::size_t> reads = 0;
  std::size_t fails_at = static_cast<std::size_t>(-1);

 private:
  std::size_t count_;
  std::set<std::size_t> damaged_;
};

constexpr ImageTransform kTiny = {.crop = Crop::zero_padded, .size = 2, .padding = 1, .flip = true};

std::vector<Batch> epoch_of(ImageLoader& loader, std::uint64_t epoch, std::size_t first = 0) {
  loader.begin_epoch(epoch, first);
  std::vector<Batch> batches;
  for (Batch batch; loader.next(batch);) batches.push_back(batch);
  return batches;
}

bool equal(const Batch& a, const Batch& b) {
  return a.pixels == b.pixels && a.labels == b.labels && a.indices == b.indices;
}

TEST(LoaderTest, gives_the_same_whatever_the_number_of_threads) {
  const auto source = std::make_shared<Records>(103);
  ImageLoader one(source, kTiny, {.batch = 8, .workers = 1, .seed = 5, .queue = 1});
  const std::vector<Batch> expected = epoch_of(one, 3);
  ASSERT_EQ(expected.size(), 12U);
  for (const int workers : {2, 3, 8}) {
    ImageLoader many(source, kTiny, {.batch = 8, .workers = workers, .seed = 5, .queue = 3});
    const std::vector<Batch> found = epoch_of(many, 3);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(equal(found[i], expected[i])) << workers << " " << i;
  }
  ImageLoader other_seed(source, kTiny, {.batch = 8, .seed = 6});
  EXPECT_FALSE(equal(epoch_of(other_seed, 3)[0], expected[0]));
  EXPECT_FALSE(equal(epoch_of(one, 4)[0], expected[0]));
}

TEST(LoaderTest, each_record_is_cropped_in_its_own_way_and_another_one_in_each_epoch) {
  ImageLoader loader(std::make_shared<Records>(64), kTiny, {.batch = 64, .shuffle = false});
  const auto black_pixels = [&](std::uint64_t epoch) {
    std::vector<unsigned> patterns;
    const Batch batch = epoch_of(loader, epoch).at(0);
    for (std::size_t image = 1; image < 64; ++image) {  // the first is black all over
      unsigned pattern = 0;
      for (std::size_t i = 0; i < 4; ++i) pattern |= batch.pixels[image * 12 + i] == 0.0F ? 1U << i : 0U;
      patterns.push_back(pattern);
    }
    return patterns;
  };
  const std::vector<unsigned> first = black_pixels(0);
  EXPECT_EQ(std::set<unsigned>(first.begin(), first.end()).size(), 9U);  // a window of 4 pixels in 9 places
  EXPECT_NE(first, black_pixels(1));
  EXPECT_EQ(first, black_pixels(0));
}

TEST(LoaderTest, an_epoch_has_every_record_once) {
  ImageLoader loader(std::make_shared<Records>(30), kTiny, {.batch = 8, .drop_last = false});
  EXPECT_EQ(loader.batches(), 4U);
  std::multiset<std::int64_t> seen;
  for (const Batch& batch : epoch_of(loader, 0)) {
    EXPECT_EQ(batch.pixels.size(), batch.labels.size() * 12);
    seen.insert(batch.indices.begin(), batch.indices.end());
    for (std::size_t i = 0; i < batch.labels.size(); ++i) EXPECT_EQ(batch.labels[i], batch.indices[i] % 10);
  }
  EXPECT_EQ(seen.size(), 30U);
  EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), 30U);
}

TEST(LoaderTest, without_shuffling_records_come_as_they_lie) {
  ImageLoader loader(std::make_shared<Records>(5), {.size = 2}, {.batch = 2, .shuffle = false, .drop_last = false});
  const std::vector<Batch> batches = epoch_of(loader, 0);
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_THAT(batches[1].indices, ElementsAre(2, 3));
  EXPECT_THAT(batches[2].indices, ElementsAre(4));
}

TEST(LoaderTest, an_epoch_can_begin_in_its_middle) {
  ImageLoader loader(std::make_shared<Records>(64), kTiny, {.batch = 8, .workers = 3});
  const std::vector<Batch> whole = epoch_of(loader, 2);
  Batch batch;
  loader.begin_epoch(9);  // left after two batches
  ASSERT_TRUE(loader.next(batch) && loader.next(batch));
  const std::vector<Batch> rest = epoch_of(loader, 2, 5);
  ASSERT_EQ(rest.size(), 3U);
  for (std::size_t i = 0; i < rest.size(); ++i) EXPECT_TRUE(equal(rest[i], whole[i + 5]));
  EXPECT_TRUE(epoch_of(loader, 2, 8).empty());
}

TEST(LoaderTest, damaged_records_are_left_out_named_and_counted_once) {
  ImageLoader loader(std::make_shared<Records>(12, std::set<std::size_t>{4, 5, 6, 7, 9}), {.size = 2},
                     {.batch = 4, .workers = 3, .shuffle = false});
  for (const std::uint64_t epoch : {0U, 1U}) {
    const std::vector<Batch> batches = epoch_of(loader, epoch);
    ASSERT_EQ(batches.size(), 2U);  // nothing is left of the second
    EXPECT_THAT(batches[1].indices, ElementsAre(8, 10, 11));
    EXPECT_EQ(batches[1].pixels.size(), 36U);
    EXPECT_THAT(loader.skipped(), ElementsAre("record 4: worms", "record 5: worms", "record 6: worms",
                                              "record 7: worms", "record 9: worms"));
  }
}

TEST(LoaderTest, what_a_worker_throws_arrives_in_its_place) {
  const auto source = std::make_shared<Records>(12);
  source->fails_at = 6;
  ImageLoader loader(source, {.size = 2}, {.batch = 4, .workers = 2, .shuffle = false});
  loader.begin_epoch(0);
  Batch batch;
  EXPECT_TRUE(loader.next(batch));
  EXPECT_THROW(loader.next(batch), std::logic_error);
  EXPECT_TRUE(loader.next(batch));
  EXPECT_THAT(batch.indices, ElementsAre(8, 9, 10, 11));
}

TEST(LoaderTest, is_no_further_ahead_than_its_queue) {
  const auto source = std::make_shared<Records>(1000);
  ImageLoader loader(source, {.size = 2}, {.batch = 10, .workers = 4, .queue = 3});
  loader.begin_epoch(0);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(source->reads, 40U);  // the one that was taken, and three
}

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST(LoaderTest, memory_does_not_grow_over_twenty_epochs) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer keeps what was freed";
#endif
  const test::TemporaryFolder folder;
  for (int i = 0; i < 32; ++i) {
    const int height = 60 + 7 * i;
    std::vector<std::uint8_t> jpeg = test::as_jpeg(test::smooth_image(height, 90 + 3 * i, i));
    if (i == 11) jpeg.resize(jpeg.size() / 2);
    folder.write("class" + std::to_string(i % 4) + "/" + std::to_string(i) + ".jpg", jpeg);
  }
  ImageLoader loader(open_images(folder.string(), Split::train), imagenet_transform(Split::train, 64),
                     {.batch = 8, .workers = 2});
  std::size_t settled = 0;
  Batch batch;
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    loader.begin_epoch(epoch);
    while (loader.next(batch)) EXPECT_EQ(batch.height, 64);
    if (epoch == 4) settled = resident_bytes();
  }
  EXPECT_LE(resident_bytes(), settled + (std::size_t{2} << 20U));  // one batch is 0.4 MB
  EXPECT_EQ(loader.skipped().size(), 1U);
  EXPECT_THAT(loader.skipped()[0], HasSubstr("class3/11.jpg: not a readable JPEG"));
}

TEST(LoaderTest, wrong_options_say_what_is_allowed) {
  const auto make = [](const LoaderOptions& options) {
    return thrown_by<DataError>([&] { const ImageLoader loader(std::make_shared<Records>(5), kTiny, options); });
  };
  EXPECT_EQ(make({.batch = 0}), "batches of 0 images (allowed: 1 or more)");
  EXPECT_EQ(make({.batch = 2, .workers = 0}), "0 loading threads (allowed: 1 to 1024)");
  EXPECT_EQ(make({.batch = 2, .queue = 0}), "a queue of 0 batches (allowed: 1 or more)");
  EXPECT_EQ(make({.batch = 6}), "batches of 6 from 5 images (allowed: at most as many as there are)");
  ImageLoader loader(std::make_shared<Records>(5), kTiny, {.batch = 2});
  EXPECT_EQ(thrown_by<DataError>([&] { loader.begin_epoch(0, 3); }), "batch 3 of an epoch (allowed: 0 to 2)");
}

}  // namespace
}  // namespace actzip::data
