// A library for LD_PRELOAD that makes one chosen operation on the files of a folder fail. Operations are calls that can
// change a file. They are counted from 1 in each process, and each is logged as a line.
//
//   FAIL_FOLDER  the folder, as a path without symbolic links
//   FAIL_LOG     a log file outside of it, with lines such as "3 write checkpoint.pt.partial"
//   FAIL_AT      the number of the failing operation; 0: none
//   FAIL_HOW     error  only this operation fails, as on a full or broken disk
//                full   it fails, and so does every later operation that needs space
//                short  only half of a write is done; other operations succeed
//                kill   the process is killed before the operation
//                torn   the process is killed after half of a write, or after any other operation
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

const std::string& folder() {
  static const std::string text = setting("FAIL_FOLDER");
  return text;
}

/// The next definition of a function behind this library's.
template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool is_watched(std::string_view path) { return !folder().empty() && path.starts_with(folder()); }

std::string path_of(int file) {
  std::array<char, PATH_MAX> text{};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t size = readlink(link.c_str(), text.data(), text.size());
  return size < 0 ? std::string() : std::string(text.data(), static_cast<std::size_t>(size));
}

void log(int number, const char* what, std::string_view path) {
  static const int file = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, setting("FAIL_LOG").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  const std::string line = std::to_string(number) + " " + what + " " + std::string(path.substr(folder().size())) + "\n";
  (void)syscall(SYS_write, file, line.data(), line.size());
}

enum class Fate { done, fails, half };

[[noreturn]] void die() {
  raise(SIGKILL);
  std::abort();
}

/// What becomes of the next operation. `needs_room`: a full disk refuses it.
Fate next(const char* what, std::string_view path, bool needs_room) {
  static std::atomic<int> count = 0;
  static const int at = std::atoi(setting("FAIL_AT").c_str());
  static const std::string how = setting("FAIL_HOW");
  const int number = ++count;
  log(number, what, path);
  if (at > 0 && number > at && how == "full" && needs_room) return Fate::fails;
  if (number != at) return Fate::done;
  if (how == "kill") die();
  if (how == "error" || (how == "full" && needs_room)) return Fate::fails;
  return how == "short" || how == "torn" ? Fate::half : Fate::done;
}

bool is_torn() { return setting("FAIL_HOW") == "torn"; }

/// Calls `write` with all or half of the bytes, or fails.
template <class Write>
ssize_t write_as_fated(int file, const char* what, std::size_t size, Write write) {
  const std::string path = path_of(file);
  if (!is_watched(path)) return write(size);
  const Fate fate = next(what, path, /*needs_room=*/true);
  if (fate == Fate::fails) {
    errno = ENOSPC;
    return -1;
  }
  const ssize_t written = write(fate == Fate::half ? (size + 1) / 2 : size);
  if (fate == Fate::half && is_torn()) die();
  return written;
}

/// Calls `act` unless the operation fails with `error`.
template <class Act>
int do_as_fated(const char* what, std::string_view path, bool needs_room, int error, Act act) {
  if (!is_watched(path)) return act();
  const Fate fate = next(what, path, needs_room);
  if (fate == Fate::fails) {
    errno = error;
    return -1;
  }
  const int result = act();
  if (fate == Fate::half && is_torn()) die();
  return result;
}

int open_as_fated(const char* name, const char* path, int flags, mode_t mode) {
  const auto act = [&] { return real<int(const char*, int, ...)>(name)(path, flags, mode); };
  if ((flags & (O_WRONLY | O_RDWR)) == 0) return act();
  return do_as_fated("open", path, /*needs_room=*/true, ENOSPC, act);
}

mode_t mode_of(int flags, va_list rest) {
  return (flags & O_CREAT) != 0 ? static_cast<mode_t>(va_arg(rest, unsigned)) : 0;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return open_as_fated("open", path, flags, mode);
}

EXPORTED int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return open_as_fated("open64", path, flags, mode);
}

EXPORTED FILE* fopen64(const char* path, const char* how) {
  const auto act = [&] { return real<FILE*(const char*, const char*)>("fopen64")(path, how); };
  if (!is_watched(path) || *how == 'r') return act();
  FILE* file = nullptr;
  do_as_fated("open", path, /*needs_room=*/true, ENOSPC, [&] { return (file = act()) == nullptr ? -1 : 0; });
  return file;
}

EXPORTED ssize_t write(int file, const void* bytes, size_t size) {
  return write_as_fated(file, "write", size, [&](std::size_t part) {
    return real<ssize_t(int, const void*, size_t)>("write")(file, bytes, part);
  });
}

EXPORTED ssize_t writev(int file, const iovec* parts,
                        int count) {  // as libstdc++'s streams write; half: the first part
  return write_as_fated(file, "write", static_cast<std::size_t>(count), [&](std::size_t part) {
    return real<ssize_t(int, const iovec*, int)>("writev")(file, parts, static_cast<int>(part));
  });
}

EXPORTED ssize_t pwrite(int file, const void* bytes, size_t size, off_t at) {
  return write_as_fated(file, "write", size, [&](std::size_t part) {
    return real<ssize_t(int, const void*, size_t, off_t)>("pwrite")(file, bytes, part, at);
  });
}

EXPORTED int ftruncate(int file, off_t size) noexcept {
  return do_as_fated("truncate", path_of(file), /*needs_room=*/false, EIO,
                     [&] { return real<int(int, off_t)>("ftruncate")(file, size); });
}

EXPORTED int fsync(int file) {
  return do_as_fated("flush", path_of(file), /*needs_room=*/false, EIO, [&] { return real<int(int)>("fsync")(file); });
}

EXPORTED int fdatasync(int file) {
  return do_as_fated("flush", path_of(file), /*needs_room=*/false, EIO,
                     [&] { return real<int(int)>("fdatasync")(file); });
}

EXPORTED int rename(const char* from, const char* to) noexcept {
  return do_as_fated("rename", from, /*needs_room=*/true, ENOSPC,
                     [&] { return real<int(const char*, const char*)>("rename")(from, to); });
}

EXPORTED int close(int file) {
  const auto act = [&] { return real<int(int)>("close")(file); };
  const std::string path = folder().empty() ? std::string() : path_of(file);
  if (!is_watched(path) || (fcntl(file, F_GETFL) & (O_WRONLY | O_RDWR)) == 0) return act();
  return do_as_fated("close", path, /*needs_room=*/false, EIO, act);
}
