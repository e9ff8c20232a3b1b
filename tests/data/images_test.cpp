#include "data/images.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "made_up.hpp"

namespace actzip::data {
namespace {

using test::as_jpeg;
using test::smooth_image;
using test::TemporaryFolder;
using test::thrown_by;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// A sum that any other pixel, or another order, changes.
std::uint64_t checksum(const Image& image) {
  std::uint64_t sum = 0;
  for (const std::uint8_t value : image.rgb) sum = sum * 1'000'003 + value;
  return sum;
}

std::string cifar_record(std::initializer_list<int> labels, int red, int green, int blue) {
  std::string record;
  for (const int label : labels) record += static_cast<char>(label);
  for (const int value : {red, green, blue}) record.append(1024, static_cast<char>(value));
  return record;
}

TEST(ShapesTest, are_the_same_for_ever) {
  const auto train = open_images("shapes", Split::train);
  EXPECT_EQ(train->size(), 10'000U);
  EXPECT_EQ(train->classes(), 10);
  const auto validation = open_images("shapes:500", Split::validation);
  EXPECT_EQ(validation->size(), 100U);
  EXPECT_EQ(checksum(train->read(17, {}).image), 14103862216971786454U);
  EXPECT_EQ(checksum(validation->read(17, {}).image), 644503477384781589U);
}

TEST(ShapesTest, differ_from_one_to_the_next_and_have_all_labels) {
  const auto source = open_images("shapes:200", Split::train);
  std::set<std::uint64_t> sums;
  std::vector<int> of_class(10);
  for (std::size_t i = 0; i < source->size(); ++i) {
    const Example example = source->read(i, {});
    EXPECT_EQ(example.image.height, 32);
    EXPECT_EQ(example.image.width, 32);
    sums.insert(checksum(example.image));
    ++of_class.at(static_cast<std::size_t>(example.label));
  }
  EXPECT_EQ(sums.size(), 200U);
  EXPECT_THAT(of_class, ::testing::Each(20));
}

TEST(OpenImagesTest, says_what_is_allowed) {
  EXPECT_THAT(thrown_by<DataError>([] { (void)open_images("shapes:0", Split::train); }),
              HasSubstr("shapes:COUNT with a count from 1"));
  EXPECT_THAT(thrown_by<DataError>([] { (void)open_images("shapes:12x", Split::train); }), HasSubstr("'shapes:12x'"));
  EXPECT_THAT(thrown_by<DataError>([] { (void)open_images("/no/such", Split::train); }),
              AllOf(HasSubstr("'/no/such'"), HasSubstr("shapes[:COUNT]"), HasSubstr("LMDB")));
  const TemporaryFolder folder;
  EXPECT_THAT(thrown_by<DataError>([&] { (void)open_images(folder.string(), Split::train); }), HasSubstr("no JPEGs"));
  const auto file = folder.write("a.png", "x");
  EXPECT_THAT(thrown_by<DataError>([&] { (void)open_images(file.string(), Split::train); }), HasSubstr("*.jpgs"));
}

TEST(CifarTest, reads_all_files_of_cifar10_in_order) {
  const TemporaryFolder folder;
  for (int file = 1; file <= 5; ++file) {
    folder.write("cifar-10-batches-bin/data_batch_" + std::to_string(file) + ".bin",
                 cifar_record({file}, 10 * file, 2, 3) + cifar_record({file + 1}, 10 * file + 1, 2, 3));
  }
  folder.write("cifar-10-batches-bin/test_batch.bin", cifar_record({9}, 100, 150, 200));
  const auto train = open_images(folder.string(), Split::train);
  ASSERT_EQ(train->size(), 10U);
  EXPECT_EQ(train->classes(), 10);
  EXPECT_EQ(train->read(5, {}).label, 4);
  EXPECT_EQ(train->read(5, {}).image.rgb[0], 31);
  EXPECT_EQ(train->name_of(5), "data_batch_3.bin, image 1");
  const Example test = open_images(folder.string(), Split::validation)->read(0, {});
  EXPECT_EQ(test.label, 9);
  EXPECT_EQ(test.image.rgb[3 * 77], 100);
  EXPECT_EQ(test.image.rgb[3 * 77 + 1], 150);
  EXPECT_EQ(test.image.rgb[3 * 77 + 2], 200);
}

TEST(CifarTest, takes_the_fine_label_of_cifar100) {
  const TemporaryFolder folder;
  folder.write("train.bin", cifar_record({19, 99}, 1, 2, 3));
  const auto source = open_images(folder.string(), Split::train);
  EXPECT_EQ(source->classes(), 100);
  EXPECT_EQ(source->read(0, {}).label, 99);
}

TEST(CifarTest, a_record_that_was_cut_or_has_no_such_label_is_damaged) {
  const TemporaryFolder folder;
  folder.write("train.bin", cifar_record({0, 5}, 1, 2, 3) + cifar_record({0, 100}, 1, 2, 3) +
                                cifar_record({0, 6}, 1, 2, 3).substr(0, 1000));
  const auto source = open_images(folder.string(), Split::train);
  ASSERT_EQ(source->size(), 3U);
  EXPECT_EQ(source->read(0, {}).label, 5);
  EXPECT_EQ(thrown_by<DamagedRecord>([&] { (void)source->read(1, {}); }),
            "train.bin, image 1: label 100 (allowed: 0 to 99)");
  EXPECT_EQ(thrown_by<DamagedRecord>([&] { (void)source->read(2, {}); }),
            "train.bin, image 2: truncated: 1000 bytes of 3074");
}

TEST(CifarTest, a_file_that_shrinks_while_it_is_read_costs_its_records_alone) {
  const TemporaryFolder folder;
  const auto path = folder.write("train.bin", cifar_record({0, 5}, 1, 2, 3) + std::string(std::size_t{10} * 3074, 'x'));
  const auto source = open_images(folder.string(), Split::train);
  std::filesystem::resize_file(path, 3074);
  EXPECT_EQ(source->read(0, {}).label, 5);
  EXPECT_EQ(thrown_by<DamagedRecord>([&] { (void)source->read(7, {}); }),
            "train.bin, image 7: truncated: 0 bytes of 3074");
}

TEST(JpegsFileTest, a_file_that_shrinks_while_it_is_read_costs_its_records_alone) {
  const TemporaryFolder folder;
  const std::vector<std::uint8_t> jpeg = as_jpeg(test::noisy_image(64, 64));
  const auto path = folder.write("a.jpgs", test::as_jpegs_file({jpeg, jpeg, jpeg}));
  const auto source = open_images(path.string(), Split::train);
  std::filesystem::resize_file(path, 2 * jpeg.size());
  EXPECT_EQ(source->read(0, {}).label, 0);
  EXPECT_THAT(thrown_by<DamagedRecord>([&] { (void)source->read(2, {}); }),
              HasSubstr("a.jpgs, image 2: " + path.string() + ": it ends before byte"));
}

TEST(JpegsFileTest, reads_each_and_reports_what_was_cut) {
  const TemporaryFolder folder;
  std::vector<std::uint8_t> content =
      test::as_jpegs_file({as_jpeg(smooth_image(32, 32, 0)), as_jpeg(smooth_image(32, 32, 1)),
                           as_jpeg(smooth_image(32, 32, 2)), as_jpeg(smooth_image(32, 32, 3))});
  folder.write("some-train.jpgs", content);
  content.resize(content.size() - as_jpeg(smooth_image(32, 32, 3)).size() - 20);
  folder.write("some-test.jpgs", content);
  const auto whole = open_images(folder.string(), Split::train);
  ASSERT_EQ(whole->size(), 4U);
  EXPECT_EQ(whole->classes(), 4);
  EXPECT_EQ(whole->read(3, {}).label, 3);
  const auto cut = open_images((folder.path() / "some-test.jpgs").string(), Split::train);
  ASSERT_EQ(cut->size(), 4U);
  EXPECT_EQ(cut->read(1, {}).label, 1);
  for (const std::size_t index : {2U, 3U}) {
    EXPECT_EQ(thrown_by<DamagedRecord>([&] { (void)cut->read(index, {}); }),
              "some-test.jpgs, image " + std::to_string(index) + ": truncated: the file ends before it does");
  }
}

TEST(JpegsFileTest, refuses_other_files) {
  const TemporaryFolder folder;
  const auto open = [&](std::string_view content) {
    const std::string path = folder.write("a.jpgs", content).string();
    return thrown_by<DataError>([&] { (void)open_images(path, Split::train); });
  };
  EXPECT_THAT(open("PK\x03\x04zip"), HasSubstr("does not begin with JPGS"));
  EXPECT_THAT(open(""), HasSubstr("does not begin with JPGS"));
  EXPECT_THAT(open("JPGS\xff\xff\xff\xff"), HasSubstr("4294967295 images in 8 bytes"));
  EXPECT_THAT(open({"JPGS\x01\0\0\0\x03\xff\xff\xff\xff", 13}), HasSubstr("none of its images is whole"));
}

TEST(FolderTest, validation_has_the_labels_of_training) {
  const TemporaryFolder folder;
  for (const char* name : {"train/ant/1.jpg", "train/bee/1.JPEG", "train/bee/2.jpeg", "train/cow/x.jpg",
                           "val/cow/1.jpg", "val/ant/7.JPG"}) {
    folder.write(name, as_jpeg(smooth_image(20, 30)));
  }
  folder.write("train/bee/readme.txt", "not an image");
  const auto train = open_images(folder.string(), Split::train);
  EXPECT_EQ(train->size(), 4U);
  EXPECT_EQ(train->classes(), 3);
  EXPECT_EQ(train->name_of(1), "bee/1.JPEG");
  const auto validation = open_images(folder.string(), Split::validation);
  ASSERT_EQ(validation->size(), 2U);
  EXPECT_EQ(validation->read(0, {}).label, 0);
  EXPECT_EQ(validation->read(1, {}).label, 2);
  EXPECT_EQ(validation->read(1, {}).image.width, 30);

  folder.write("val/dog/1.jpg", as_jpeg(smooth_image(20, 30)));
  EXPECT_THAT(thrown_by<DataError>([&] { (void)open_images(folder.string(), Split::validation); }),
              HasSubstr("class dog has no folder in"));
}

TEST(FolderTest, classes_may_lie_directly_in_it) {
  const TemporaryFolder folder;
  folder.write("a/1.jpg", as_jpeg(smooth_image(20, 30)));
  folder.write("b/broken.jpg", "no JPEG");
  const auto source = open_images(folder.string(), Split::train);
  EXPECT_EQ(source->read(0, {}).label, 0);
  EXPECT_THAT(thrown_by<DamagedRecord>([&] { (void)source->read(1, {}); }), HasSubstr("b/broken.jpg: not a readable"));
}

}  // namespace
}  // namespace actzip::data
