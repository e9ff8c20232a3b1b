// A temporary folder for each test, and helpers for stores that keep files in it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "actzip/memory.hpp"
#include "plain_memory.hpp"
#include "stamped.hpp"
#include "store/store.hpp"

namespace actzip::test {

/// Returns the bytes of this process's resident pages of a kind, as named in /proc/self/status: "RssFile", "RssShmem".
inline std::size_t resident_bytes(const std::string& kind) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::size_t kib = 0;
    if (word == kind + ":" && status >> kib) return kib << 10U;
  }
  return 0;
}

inline std::size_t resident_file_bytes() { return resident_bytes("RssFile") + resident_bytes("RssShmem"); }

class FileFixture : public testing::Test {
 protected:
  explicit FileFixture(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string path = (parent / "actzip-XXXXXX").string();
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    folder = path;
  }
  ~FileFixture() override {
    std::error_code ignored;
    EXPECT_TRUE(std::filesystem::is_empty(folder)) << "the store left a file behind";
    std::filesystem::remove_all(folder, ignored);
  }

  Allocation kept(store::Store& store, std::size_t bytes, std::uint64_t seed) {
    const Allocation reserved = store.reserve(bytes, Stream(), memory);
    stamp(reserved, seed);
    return store.put_away(reserved, Stream(), memory);
  }

  Allocation fetched(store::Store& store, const Allocation& held) {
    return store.fetch(held, Stream(), Stream(), memory);
  }

  bool comes_back(store::Store& store, const Allocation& held, std::uint64_t seed) {
    return has_stamp(fetched(store, held), seed);
  }

  /// Returns the descriptors of this process's unnamed files in the folder.
  [[nodiscard]] std::vector<int> open_files() const {
    std::vector<int> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      if (std::filesystem::read_symlink(entry.path(), gone).string().starts_with(folder)) {
        found.push_back(std::stoi(entry.path().filename()));
      }
    }
    return found;
  }

  [[nodiscard]] struct stat file_status() const {
    struct stat status {};
    const std::vector<int> files = open_files();
    EXPECT_EQ(files.size(), 1U);
    if (!files.empty()) fstat(files.front(), &status);
    return status;
  }

  /// Evicts all of the files' pages that no process has mapped. Returns whether that may have worked.
  bool evict() const {
    for (const int file : open_files()) {
      if (fsync(file) != 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) return false;
    }
    return !is_in_memory(folder);
  }

  std::string folder;
  PlainMemory memory;
};

}  // namespace actzip::test
