#include "store/file_blocks.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "actzip/error.hpp"
#include "store/store.hpp"

namespace actzip::store {

namespace {

// Since Linux 5.14. An older kernel answers EINVAL, and pages are mapped one by one when they are touched.
constexpr int kPopulateRead = 22;
constexpr int kPopulateWrite = 23;

std::size_t page_bytes() {
  static const auto kBytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return kBytes;
}

std::size_t whole_pages(std::size_t bytes) { return (bytes + page_bytes() - 1) / page_bytes() * page_bytes(); }

std::byte* page_start(const std::byte* data) {
  return const_cast<std::byte*>(data) - reinterpret_cast<std::uintptr_t>(data) % page_bytes();
}

/// The pages that hold some of the bytes.
struct Pages {
  Pages(const std::byte* data, std::size_t size)
      : start(page_start(data)), size(whole_pages(static_cast<std::size_t>(data - start) + size)) {}
  std::byte* start;
  std::size_t size;
};

std::string reason(int error) { return std::generic_category().message(error); }

[[noreturn]] void refuse_folder(const std::string& folder, int error) {
  throw Error(ErrorCode::store_failure,
              fmt::format("store: no file can be made in folder '{}': {} (allowed: a folder that exists and that this "
                          "process may write)",
                          folder, reason(error)));
}

/// Opens a file without a name, for this process alone.
int open_nameless(const std::string& folder) {
  const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0) return file;
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) refuse_folder(folder, errno);
  // The file system has no nameless files: make one with a name and unlink it at once.
  std::string path = folder + "/actzip-store-XXXXXX";
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named < 0) refuse_folder(folder, errno);
  unlink(path.c_str());
  return named;
}

}  // namespace

std::shared_ptr<FileBlocks> FileBlocks::create(const std::string& folder) {
  const int file = open_nameless(folder);
  try {
    return std::shared_ptr<FileBlocks>(new FileBlocks(folder, file));
  } catch (...) {
    close(file);
    throw;
  }
}

FileBlocks::FileBlocks(std::string folder, int file) : folder_(std::move(folder)), file_(file), process_(getpid()) {}

FileBlocks::~FileBlocks() { close(file_); }

/// Gives a block back when its last owner is gone.
struct FileBlocks::Release {
  std::shared_ptr<FileBlocks> source;
  std::size_t size;
  off_t at;
  void operator()(void* data) const noexcept { source->release(static_cast<std::byte*>(data), size, at); }
};

Allocation FileBlocks::block(std::size_t bytes) {
  const std::size_t size = whole_pages(bytes);
  off_t at = 0;
  std::byte* const data = map_new(size, at);
  // Outside the lock: if there is no memory for the control block, shared_ptr calls Release, which takes the lock.
  return {data, size, std::shared_ptr<void>(data, Release{shared_from_this(), size, at})};
}

/// Adds an extent to the file, stores its offset in `at`, and returns where it is mapped.
std::byte* FileBlocks::map_new(std::size_t size, off_t& at) {
  const std::lock_guard lock(mutex_);
  at = gap(size);
  extents_.emplace(at, size);
  void* mapped = MAP_FAILED;
  try {
    make_room(at, size);
    mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, at);
    if (mapped == MAP_FAILED) fail(size, "they cannot be mapped", errno);
    places_.emplace(static_cast<std::byte*>(mapped), at);
  } catch (...) {
    if (mapped != MAP_FAILED) munmap(mapped, size);
    give_back(at, size);
    throw;
  }
  return static_cast<std::byte*>(mapped);
}

/// Returns an offset at which a block fits between others, or after the last one.
off_t FileBlocks::gap(std::size_t size) const {
  off_t at = 0;
  for (const auto& [start, used] : extents_) {
    if (start - at >= static_cast<off_t>(size)) return at;
    at = start + static_cast<off_t>(used);
  }
  return at;
}

off_t FileBlocks::end() const {
  if (extents_.empty()) return 0;
  const auto& [start, used] = *extents_.rbegin();
  return start + static_cast<off_t>(used);
}

void FileBlocks::make_room(off_t at, std::size_t size) const {
  // Beyond this limit the kernel sends a signal that ends the process.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(at) + size) {
    fail(size, "they would be above the limit on the size of files", EFBIG);
  }
  int error = EINTR;
  while (error == EINTR) error = posix_fallocate(file_, at, static_cast<off_t>(size));
  if (error != 0) fail(size, "there is no room for them", error);
}

/// Removes an extent from the file, as far as the file system can.
void FileBlocks::give_back(off_t at, std::size_t size) noexcept {
  extents_.erase(at);
  if (getpid() != process_) return;  // the file belongs to the parent process
  if (at >= end()) {
    (void)!ftruncate(file_, end());
  } else {
    (void)!fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, static_cast<off_t>(size));
  }
}

void FileBlocks::release(std::byte* data, std::size_t size, off_t at) noexcept {
  const std::lock_guard lock(mutex_);
  places_.erase(data);
  munmap(data, size);
  give_back(at, size);
}

off_t FileBlocks::place_of(const std::byte* data) const noexcept {
  const std::lock_guard lock(mutex_);
  const auto& [start, at] = *std::prev(places_.upper_bound(data));
  return at + (data - start);
}

void FileBlocks::forget_contents(const std::byte* data, std::size_t size) noexcept {
  if (is_lost()) return;
  (void)!fallocate(file_, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, place_of(data),
                   static_cast<off_t>(whole_pages(size)));
}

void FileBlocks::prepare(const std::byte* data, std::size_t size) {
  const Pages pages(data, size);
  if (madvise(pages.start, pages.size, kPopulateWrite) != 0 && errno != EINVAL) {
    fail(size, "the disk or the memory has no room for them", errno);
  }
}

/// Notes a failure of sync_file_range(). A file system that does not know the call has lost nothing.
void FileBlocks::note_failure(int result) noexcept {
  if (result != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT)) has_failed_ = true;
}

void FileBlocks::put_away(const std::byte* data, std::size_t size) noexcept {
  std::byte* const first = page_start(data);
  const auto bytes = static_cast<std::size_t>(page_start(data + size) - first);
  if (bytes == 0 || getpid() != process_) return;
  note_failure(
      sync_file_range(file_, place_of(data) - (data - first), static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE));
  (void)madvise(first, bytes, MADV_DONTNEED);
}

void FileBlocks::read_ahead(const std::byte* data, std::size_t size) noexcept {
  const Pages pages(data, size);
  (void)madvise(pages.start, pages.size, MADV_WILLNEED);
}

void FileBlocks::read(const std::byte* data, std::size_t size) {
  if (getpid() != process_) {
    throw Error(
        ErrorCode::store_failure,
        fmt::format("store: bytes in a file in folder '{}' are asked for by process {}, but process {} put them "
                    "there and may have freed them since (allowed: backward in the process of its forward)",
                    folder_, getpid(), process_));
  }
  // Nothing lies that far out, so this does not wait. It tells whether any write has failed since the last call.
  constexpr off_t kBehindAll = off_t{1} << 60;
  note_failure(sync_file_range(file_, kBehindAll, 1, SYNC_FILE_RANGE_WAIT_BEFORE));
  if (has_failed_) fail(size, "the disk refused to write some bytes of this file, perhaps these", EIO);
  const Pages pages(data, size);
  if (madvise(pages.start, pages.size, kPopulateRead) != 0 && errno != EINVAL) {
    fail(size, "they cannot be read back", errno);
  }
}

void FileBlocks::discard(const std::byte* data, std::size_t size) noexcept {
  const Pages pages(data, size);
  (void)madvise(pages.start, pages.size, MADV_DONTNEED);
  if (size > 0 && getpid() == process_) {  // to the kernel, a size of 0 means up to the end
    (void)posix_fadvise(file_, place_of(data), static_cast<off_t>(size), POSIX_FADV_DONTNEED);
  }
}

bool FileBlocks::is_resident(const std::byte* data, std::size_t size) const noexcept {
  const Pages pages(data, size);
  std::array<unsigned char, 1024> is_in{};
  for (std::size_t at = 0; at < pages.size; at += is_in.size() * page_bytes()) {
    const std::size_t part = std::min(pages.size - at, is_in.size() * page_bytes());
    if (mincore(pages.start + at, part, is_in.data()) != 0) return false;
    const auto last = is_in.begin() + static_cast<std::ptrdiff_t>(part / page_bytes());
    if (std::any_of(is_in.begin(), last, [](unsigned char page) { return (page & 1U) == 0; })) return false;
  }
  return true;
}

bool FileBlocks::is_lost() const noexcept { return has_failed_ || getpid() != process_; }

std::size_t FileBlocks::file_bytes() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(end());
}

void FileBlocks::fail(std::size_t bytes, const char* what, int error) const {
  struct statvfs disk {};
  const bool is_known = fstatvfs(file_, &disk) == 0;
  const std::string room = is_known ? fmt::format("{} bytes are free", disk.f_bavail * disk.f_frsize) : "unknown room";
  throw Error(
      ErrorCode::store_failure,
      fmt::format("store: {} bytes in a file in folder '{}': {}: {} (there: {}). Name a folder with more room, or "
                  "keep less: a smaller batch, fewer bits",
                  bytes, folder_, what, reason(error), room));
}

}  // namespace actzip::store

namespace actzip {

bool is_in_memory(const std::string& folder) {
  struct statfs system {};
  if (statfs(folder.c_str(), &system) != 0) store::refuse_folder(folder, errno);
  return system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC;
}

}  // namespace actzip
