#include "data/lmdb.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "made_up.hpp"

namespace actzip::data {
namespace {

using test::as_jpeg;
using test::smooth_image;
using test::TemporaryFolder;
using test::thrown_by;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

/// Whether this build has LMDB; else there is one thing to test.
bool has_lmdb() {
  const TemporaryFolder folder;
  folder.write("x/data.mdb", "");
  const std::string message = thrown_by<DataError>([&] { (void)open_lmdb(folder.path() / "x"); });
  return message.find("no LMDB") == std::string::npos;
}

class LmdbTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_lmdb()) GTEST_SKIP() << "built without LMDB";
  }

  /// Classes and files, all of 8 x 8 pixels, with a class's number as blue.
  void make_classes(int classes, int files) const {
    for (int c = 0; c < classes; ++c) {
      const std::vector<std::uint8_t> jpeg = as_jpeg(smooth_image(8, 8, c));
      for (int i = 0; i < files; ++i) {
        folder_.write("train/n" + std::to_string(10'000 + c) + "/" + std::to_string(i) + ".JPEG", jpeg);
      }
    }
  }

  [[nodiscard]] FolderImages images() const { return {folder_.path(), Split::train}; }
  [[nodiscard]] fs::path database() const { return lmdb_of_split(folder_.path(), Split::train); }

  TemporaryFolder folder_;
};

void no_progress(std::size_t /*done*/, std::size_t /*all*/) {}

TEST_F(LmdbTest, a_thousand_classes_are_read_as_from_the_folder) {
  make_classes(1000, 2);
  const FolderImages from(folder_.path(), Split::train);
  std::size_t last = 0;
  const Conversion done = write_lmdb(from, database(), [&](std::size_t count, std::size_t all) {
    EXPECT_GT(count, last);
    EXPECT_EQ(all, 2000U);
    last = count;
  });
  EXPECT_EQ(last, 2000U);
  EXPECT_EQ(done.records, 2000U);
  EXPECT_TRUE(done.skipped.empty());
  EXPECT_FALSE(fs::exists(database().string() + ".partial"));

  const auto read = open_images(folder_.string(), Split::train);
  EXPECT_EQ(read->kind(), "LMDB of JPEGs");
  ASSERT_EQ(read->size(), 2000U);
  EXPECT_EQ(read->classes(), 1000);
  for (std::size_t i = 0; i < read->size(); i += 37) {
    const Example a = from.read(i, {});
    const Example b = read->read(i, {});
    ASSERT_EQ(a.label, b.label);
    ASSERT_EQ(a.image.rgb, b.image.rgb);
  }
  EXPECT_EQ(read->name_of(3), "train.lmdb, record 3 (n10001/1.JPEG)");
}

TEST_F(LmdbTest, goes_on_where_it_was_stopped) {
  make_classes(50, 100);  // more than one commit
  struct Stopped {};
  EXPECT_THROW(write_lmdb(images(), database(),
                          [](std::size_t done, std::size_t all) {
                            if (done < all) throw Stopped();
                          }),
               Stopped);
  EXPECT_FALSE(fs::exists(database()));  // never half-written
  EXPECT_THAT(thrown_by<DataError>([&] { (void)open_lmdb(database().string() + ".partial"); }),
              HasSubstr("format is ''"));

  const Conversion rest = write_lmdb(images(), database(), no_progress);
  EXPECT_EQ(rest.found, 4096U);
  EXPECT_EQ(rest.records, 5000U);
  const auto read = open_lmdb(database());
  for (const std::size_t index : {0U, 4095U, 4096U, 4999U}) {
    EXPECT_EQ(read->read(index, {}).label, static_cast<std::int64_t>(index / 100));
    EXPECT_THAT(read->name_of(index), HasSubstr(images().name_of(index)));
  }
  EXPECT_EQ(write_lmdb(images(), database(), no_progress).found, 5000U);  // nothing is left to do
}

TEST_F(LmdbTest, does_not_mix_two_folders) {
  make_classes(50, 100);
  EXPECT_THROW(write_lmdb(images(), database(), [](std::size_t, std::size_t) { throw 1; }), int);
  folder_.write("train/n10000/one_more.jpg", as_jpeg(smooth_image(8, 8)));
  EXPECT_THAT(thrown_by<DataError>([&] { (void)write_lmdb(images(), database(), no_progress); }),
              AllOf(HasSubstr("begun with other files"), HasSubstr("remove it")));
  fs::remove(folder_.path() / "train/n10000/one_more.jpg");
  write_lmdb(images(), database(), no_progress);
  folder_.write("train/n10000/one_more.jpg", as_jpeg(smooth_image(8, 8)));
  EXPECT_THAT(thrown_by<DataError>([&] { (void)write_lmdb(images(), database(), no_progress); }),
              HasSubstr("is there already, of other files"));
}

TEST_F(LmdbTest, what_is_no_jpeg_is_named_and_skipped_and_what_was_cut_is_damaged) {
  make_classes(3, 2);
  folder_.write("train/n10001/0.JPEG", "GIF89a");
  std::vector<std::uint8_t> cut = as_jpeg(smooth_image(8, 8));
  cut.resize(cut.size() - 9);
  folder_.write("train/n10002/0.JPEG", cut);
  const Conversion done = write_lmdb(images(), database(), no_progress);
  EXPECT_EQ(done.records, 5U);
  ASSERT_EQ(done.skipped.size(), 1U);
  EXPECT_THAT(done.skipped[0], HasSubstr("n10001/0.JPEG: not a readable JPEG"));
  const auto read = open_lmdb(database());
  EXPECT_EQ(read->read(2, {}).label, 1);
  EXPECT_THAT(thrown_by<DamagedRecord>([&] { (void)read->read(3, {}); }),
              HasSubstr("train.lmdb, record 3 (n10002/0.JPEG): not a readable JPEG"));
  EXPECT_EQ(thrown_by<DamagedRecord>([&] { (void)read->read(99, {}); }), "train.lmdb, record 99: missing");
}

TEST_F(LmdbTest, many_threads_read_at_once) {
  make_classes(10, 10);
  write_lmdb(images(), database(), no_progress);
  const auto read = open_lmdb(database());
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 6; ++t) {
      threads.emplace_back([&] {
        for (std::size_t i = 0; i < 300; ++i) {
          if (read->read(i % 100, {}).label != static_cast<std::int64_t>(i % 100 / 10)) ++wrong;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST_F(LmdbTest, refuses_a_database_of_others) {
  folder_.write("data.mdb", std::string(8192, 'x'));
  EXPECT_THAT(thrown_by<DataError>([&] { (void)open_images(folder_.string(), Split::train); }),
              HasSubstr(folder_.string() + "/data.mdb: no LMDB, or of another version"));
}

/// Reads every record; false if the database is refused.
bool can_be_read(const fs::path& folder) {
  try {
    const auto images = open_lmdb(folder);
    for (std::size_t i = 0; i < images->size(); ++i) {
      try {
        (void)images->name_of(i);  // decodes nothing
      } catch (const DamagedRecord&) {
        continue;
      }
    }
  } catch (const DataError&) {
    return false;
  }
  return true;
}

TEST_F(LmdbTest, what_was_cut_anywhere_is_refused) {
  make_classes(3, 40);
  folder_.write("train/n10001/large.JPEG", as_jpeg(test::noisy_image(64, 64)));
  write_lmdb(images(), database(), no_progress);
  const std::string whole = test::content_of(database() / "data.mdb");
  ASSERT_TRUE(can_be_read(database()));
  for (std::size_t length = 0; length < whole.size(); length += 1024) {
    folder_.write("cut/data.mdb", whole.substr(0, length));
    EXPECT_FALSE(can_be_read(folder_.path() / "cut")) << length << " bytes";
  }
  EXPECT_THAT(thrown_by<DataError>([&] { (void)open_lmdb(folder_.path() / "cut"); }), HasSubstr("data.mdb: truncated"));
}

TEST_F(LmdbTest, any_wrong_byte_gives_records_or_an_error_and_nothing_worse) {
  make_classes(3, 14);
  write_lmdb(images(), database(), no_progress);
  const std::string whole = test::content_of(database() / "data.mdb");
  std::fstream file(database() / "data.mdb", std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&](std::size_t at, char value) { file.seekp(static_cast<std::streamoff>(at)).put(value).flush(); };
  for (std::size_t at = 0; at < whole.size(); ++at) {
    constexpr std::size_t kPage = 4096, kHead = 192;
    if (at % kPage >= kHead && at % 5 != 0) continue;  // heads and places of entries whole, entries here and there
    put(at, static_cast<char>(~whole[at]));
    (void)can_be_read(database());
    put(at, whole[at]);
  }
  EXPECT_TRUE(can_be_read(database()));
}

TEST_F(LmdbTest, more_records_than_entries_are_refused) {
  make_classes(2, 3);
  write_lmdb(images(), database(), no_progress);
  std::string content = test::content_of(database() / "data.mdb");
  const std::size_t at = content.rfind("records") + std::string_view("records").size();
  content.replace(at, 8, "\xff\xff\xff\xff\xff\xff\xff\x0f");
  folder_.write("many/data.mdb", content);
  EXPECT_THAT(thrown_by<DataError>([&] { (void)open_lmdb(folder_.path() / "many"); }),
              HasSubstr("1152921504606846975 records of 2 classes (allowed: 1 class or more, 1 to 12 records)"));
}

}  // namespace
}  // namespace actzip::data
