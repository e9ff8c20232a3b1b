#include "failing_calls.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>

namespace actzip::test {
namespace {

struct Watch {
  int number = 0;
  std::string name;
  int error = 0;
  std::vector<std::string> seen;
};

std::atomic<bool> g_is_watching = false;
std::mutex g_watch_mutex;
Watch g_watch;

/// The error that this call fails with; none if it does not.
std::optional<int> fate_of_call(const char* name, int usual_error) {
  if (!g_is_watching) return std::nullopt;
  const std::lock_guard lock(g_watch_mutex);
  g_watch.seen.emplace_back(name);
  if (!g_watch.name.empty() && g_watch.name == name) return g_watch.error;
  if (static_cast<int>(g_watch.seen.size()) == g_watch.number) return usual_error;
  return std::nullopt;
}

void begin_watch(Watch watch) {
  const std::lock_guard lock(g_watch_mutex);
  g_watch = std::move(watch);
  g_is_watching = true;
}

template <class Result, class Call>
Result call_or_fail(const char* name, int usual_error, Result failed, Call call) {
  if (const auto error = fate_of_call(name, usual_error)) {
    errno = *error;
    return failed;
  }
  return call();
}

const char* name_of_advice(int advice) {
  switch (advice) {
    case MADV_DONTNEED: return "madvise:dontneed";
    case MADV_WILLNEED: return "madvise:willneed";
    case MADV_HUGEPAGE: return "madvise:hugepage";
    case 22: return "madvise:populate_read";
    case 23: return "madvise:populate_write";
    default: return "madvise";
  }
}

}  // namespace

FailingCalls::FailingCalls(int number) { begin_watch({.number = number, .name = {}, .error = 0, .seen = {}}); }
FailingCalls::FailingCalls(std::string name, int error) {
  begin_watch({.number = 0, .name = std::move(name), .error = error, .seen = {}});
}
FailingCalls::~FailingCalls() { g_is_watching = false; }

std::vector<std::string> FailingCalls::names() const {
  const std::lock_guard lock(g_watch_mutex);
  return g_watch.seen;
}

int FailingCalls::count(const std::string& name) const {
  const std::vector<std::string> all = names();
  return static_cast<int>(std::count(all.begin(), all.end(), name));
}

}  // namespace actzip::test

using actzip::test::call_or_fail;

// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {

int __real_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return call_or_fail("open", EACCES, -1, [&] { return __real_open(path, flags, mode); });
}

int __real_mkostemp(char* path, int flags);
int __wrap_mkostemp(char* path, int flags) {
  return call_or_fail("mkostemp", EACCES, -1, [&] { return __real_mkostemp(path, flags); });
}

int __real_posix_fallocate(int file, off_t at, off_t size);
int __wrap_posix_fallocate(int file, off_t at, off_t size) {
  if (const auto error = actzip::test::fate_of_call("posix_fallocate", ENOSPC)) return *error;
  return __real_posix_fallocate(file, at, size);
}

void* __real_mmap(void* where, std::size_t size, int access, int flags, int file, off_t at);
void* __wrap_mmap(void* where, std::size_t size, int access, int flags, int file, off_t at) {
  return call_or_fail("mmap", ENOMEM, MAP_FAILED, [&] { return __real_mmap(where, size, access, flags, file, at); });
}

int __real_madvise(void* where, std::size_t size, int advice);
int __wrap_madvise(void* where, std::size_t size, int advice) {
  return call_or_fail(actzip::test::name_of_advice(advice), EFAULT, -1,
                      [&] { return __real_madvise(where, size, advice); });
}

int __real_sync_file_range(int file, off_t at, off_t size, unsigned flags);
int __wrap_sync_file_range(int file, off_t at, off_t size, unsigned flags) {
  const char* const name = flags == SYNC_FILE_RANGE_WRITE ? "sync_file_range:write" : "sync_file_range:wait";
  return call_or_fail(name, EIO, -1, [&] { return __real_sync_file_range(file, at, size, flags); });
}

int __real_fallocate(int file, int mode, off_t at, off_t size);
int __wrap_fallocate(int file, int mode, off_t at, off_t size) {
  const char* const name = (mode & FALLOC_FL_PUNCH_HOLE) != 0 ? "fallocate:punch" : "fallocate:zero";
  return call_or_fail(name, EOPNOTSUPP, -1, [&] { return __real_fallocate(file, mode, at, size); });
}

int __real_ftruncate(int file, off_t size);
int __wrap_ftruncate(int file, off_t size) {
  return call_or_fail("ftruncate", EIO, -1, [&] { return __real_ftruncate(file, size); });
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
