// Files of the store: shrinking files, full or failing disks, and systems that refuse calls.
#include "store/file_blocks.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actzip/error.hpp"
#include "expect_error.hpp"
#include "failing_calls.hpp"
#include "file_fixture.hpp"
#include "store/store.hpp"

namespace actzip::store {
namespace {

using test::FailingCalls;
using test::has_stamp;
using test::stamp;

constexpr std::size_t kFileMiB = std::size_t{1} << 20U;
constexpr std::size_t kStoreBlock = 64 * kFileMiB;

class FileBlocksTest : public test::FileFixture {
 protected:
  using FileFixture::FileFixture;

  /// The message of the Error store_failure that `body` must throw.
  template <class Body>
  static std::string failure_of(Body&& body) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), "store_failure");
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }

  void expect_failure(std::string_view part, const std::string& message) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
};

TEST_F(FileBlocksTest, AFreedBlockLeavesTheFile) {
  const auto blocks = FileBlocks::create(folder);
  Allocation first = blocks->block(kFileMiB);
  Allocation second = blocks->block(2 * kFileMiB);
  Allocation third = blocks->block(kFileMiB);
  for (const Allocation& block : {first, second, third}) stamp(block, block.size);
  EXPECT_EQ(blocks->file_bytes(), 4 * kFileMiB);
  const auto full = file_status().st_blocks;
  second = {};
  EXPECT_EQ(file_status().st_size, static_cast<off_t>(4 * kFileMiB));
  EXPECT_LE(file_status().st_blocks, full - static_cast<blkcnt_t>(2 * kFileMiB / 512)) << "no hole was punched";
  second = blocks->block(kFileMiB);  // fits into the hole
  EXPECT_EQ(blocks->file_bytes(), 4 * kFileMiB);
  third = {};
  EXPECT_EQ(file_status().st_size, static_cast<off_t>(2 * kFileMiB));
  EXPECT_TRUE(has_stamp(first, first.size));
  first = second = {};
  EXPECT_EQ(file_status().st_size, 0);
}

TEST_F(FileBlocksTest, WhatIsDiscardedLeavesMemoryAndItsNeighboursStay) {
  if (is_in_memory(folder)) GTEST_SKIP() << "the temporary folder lies in memory";
  const auto blocks = FileBlocks::create(folder);
  const Allocation block = blocks->block(2 * kFileMiB);
  stamp(block, 1);
  ASSERT_EQ(fsync(open_files().front()), 0);
  blocks->put_away(block.data, block.size);
  EXPECT_TRUE(blocks->is_resident(block.data, block.size));
  blocks->discard(block.data, kFileMiB);
  EXPECT_FALSE(blocks->is_resident(block.data, kFileMiB));
  EXPECT_TRUE(blocks->is_resident(block.data + kFileMiB, kFileMiB));
  blocks->read(block.data, block.size);
  EXPECT_TRUE(has_stamp(block, 1));
}

TEST_F(FileBlocksTest, SaysWhatIsWrongWithAFolder) {
  const std::string rest = " (allowed: a folder that exists and that this process may write)";
  test::expect_error(ErrorCode::store_failure,
                     "store: no file can be made in folder '" + folder + "/missing': No such file or directory" + rest,
                     [&] { (void)file_store(folder + "/missing"); });
  std::ofstream(folder + "/file") << "text";
  test::expect_error(ErrorCode::store_failure,
                     "store: no file can be made in folder '" + folder + "/file': Not a directory" + rest,
                     [&] { (void)file_store(folder + "/file"); });
  std::filesystem::remove(folder + "/file");
  expect_failure("/proc", failure_of([&] { (void)file_store("/proc"); }));
  const FailingCalls calls("open", EACCES);
  expect_failure("Permission denied", failure_of([&] { (void)file_store(folder); }));
}

TEST_F(FileBlocksTest, AFileSystemWithoutNamelessFilesWillDo) {
  const FailingCalls calls("open", EOPNOTSUPP);
  const auto store = file_store(folder);
  EXPECT_EQ(calls.count("mkostemp"), 1);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_TRUE(comes_back(*store, kept(*store, 1000, 1), 1));
}

TEST_F(FileBlocksTest, KnowsFoldersInMemory) {
  if (std::filesystem::exists("/dev/shm")) {
    EXPECT_TRUE(is_in_memory("/dev/shm"));
  }
  EXPECT_FALSE(is_in_memory("/proc"));
  expect_failure("No such file", failure_of([&] { (void)is_in_memory(folder + "/missing"); }));
}

TEST_F(FileBlocksTest, AFullDiskIsAnErrorOfForwardAndNothingIsLost) {
  bool is_mounted = false;
  std::thread([&] {  // with mounts of its own, which end with it
    is_mounted = unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                 mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=80m") == 0;
    if (!is_mounted) return;
    const auto store = file_store(folder);
    EXPECT_TRUE(is_in_memory(folder));
    const Allocation held = kept(*store, kFileMiB, 1);
    const std::string message = failure_of([&] { (void)store->reserve(kStoreBlock, Stream(), memory); });
    expect_failure("67108864 bytes in a file in folder '" + folder + "'", message);
    expect_failure("there is no room for them: No space left on device (there: ", message);
    EXPECT_TRUE(comes_back(*store, held, 1));
    const Allocation next = kept(*store, kFileMiB, 2);
    EXPECT_TRUE(comes_back(*store, next, 2));
    EXPECT_TRUE(has_stamp(held, 1));
  })
      .join();
  if (!is_mounted) GTEST_SKIP() << "this process may not mount a small disk";
}

TEST_F(FileBlocksTest, ALimitOnFilesIsAnErrorAndNoSignal) {
  const auto store = file_store(folder);
  const Allocation held = kept(*store, 1000, 1);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = kStoreBlock;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = failure_of([&] { (void)store->reserve(kStoreBlock, Stream(), memory); });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  expect_failure("they would be above the limit on the size of files: File too large", message);
  EXPECT_TRUE(comes_back(*store, held, 1));
  EXPECT_EQ(kept(*store, kStoreBlock, 2).size, kStoreBlock);
}

TEST_F(FileBlocksTest, WhatTheDiskRefusedToWriteIsAnErrorOfBackward) {
  const auto store = file_store(folder);
  const Allocation held = kept(*store, kFileMiB, 1);
  {
    const FailingCalls calls("sync_file_range:wait", EIO);  // as the kernel tells of a write that failed
    expect_failure("the disk refused to write", failure_of([&] { (void)fetched(*store, held); }));
  }
  (void)failure_of([&] { (void)fetched(*store, held); });  // it is not forgotten
  const Allocation next = kept(*store, kFileMiB, 2);       // in another file
  EXPECT_TRUE(comes_back(*store, next, 2));
  EXPECT_EQ(open_files().size(), 2U);
  const_cast<Allocation&>(held) = {};
  EXPECT_EQ(open_files().size(), 1U);
}

TEST_F(FileBlocksTest, KernelsThatDoNotKnowACallAreSlowerNotWrong) {
  for (const char* const name : {"madvise:populate_read", "madvise:populate_write", "madvise:willneed",
                                 "madvise:dontneed", "sync_file_range:write", "sync_file_range:wait"}) {
    const FailingCalls calls(name, EINVAL);
    const auto store = file_store(folder);
    const Allocation first = kept(*store, kFileMiB, 1);
    const Allocation second = kept(*store, kFileMiB, 2);
    EXPECT_TRUE(comes_back(*store, second, 2)) << name;
    EXPECT_TRUE(comes_back(*store, first, 1)) << name;
    EXPECT_GT(calls.count(name), 0);
  }
}

/// Two steps, with blocks that come and go; true unless it found other bytes than it had put away.
class Steps : public FileBlocksTest {
 protected:
  // In memory if possible: on a disk, a file that shrinks waits for what is being written.
  Steps() : FileBlocksTest(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path()) {}

  bool run(Store& store) {
    bool is_right = true;
    for (int step = 0; step < 2; ++step) {
      std::vector<Allocation> blobs;
      for (const std::size_t bytes : {1000UL, 100'000UL, 300'000UL, 5UL, 70'000UL})
        blobs.push_back(kept(store, bytes, bytes));
      while (!blobs.empty()) {
        is_right = is_right && comes_back(store, blobs.back(), blobs.back().size);
        blobs.pop_back();
      }
      store.trim();
    }
    return is_right;
  }
};

TEST_F(Steps, AnyCallMayFailAndTheNextStepIsRight) {
  int num_calls = 0;
  {
    const FailingCalls calls;
    EXPECT_TRUE(run(*file_store(folder, kFileMiB, kFileMiB / 8)));
    num_calls = static_cast<int>(calls.names().size());
  }
  ASSERT_GT(num_calls, 50);
  int num_errors = 0;
  for (int number = 1; number <= num_calls; ++number) {
    std::shared_ptr<Store> store;
    try {
      const FailingCalls calls(number);
      store = file_store(folder, kFileMiB, kFileMiB / 8);
      EXPECT_TRUE(run(*store)) << "call " << number;
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), "store_failure");
      ++num_errors;
    }
    if (store == nullptr) store = file_store(folder, kFileMiB, kFileMiB / 8);
    EXPECT_EQ(store->stats().device_bytes + store->stats().away_bytes, 0U) << "after call " << number;
    EXPECT_TRUE(run(*store)) << "after call " << number;
    store.reset();
    EXPECT_TRUE(open_files().empty()) << "after call " << number;
  }
  EXPECT_GT(num_errors, 10);
  EXPECT_LT(num_errors, num_calls);  // the others were only wishes
}

TEST_F(FileBlocksTest, AForkedProcessLeavesTheFileAlone) {
  const auto store = file_store(folder);
  std::vector<Allocation> blobs{kept(*store, kFileMiB, 1), kept(*store, kFileMiB, 2)};
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool is_refused = false;
    try {
      (void)fetched(*store, blobs[1]);
    } catch (const Error& error) {
      is_refused = std::string_view(error.what()).find("backward in the process of its forward") != std::string::npos;
    }
    blobs.clear();  // must not touch what the parent holds
    store->trim();
    const bool is_own = comes_back(*store, kept(*store, 2 * kFileMiB, 3), 3);  // in a file of its own
    _exit(is_refused && is_own ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (std::uint64_t i = 2; i-- > 0;) EXPECT_TRUE(comes_back(*store, blobs[i], i + 1));
}

}  // namespace
}  // namespace actzip::store
