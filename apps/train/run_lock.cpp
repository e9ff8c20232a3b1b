#include "run_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "options.hpp"

namespace actzip::train {

namespace {

/// Returns "process 4711 on somewhere".
std::string this_process() {
  std::array<char, HOST_NAME_MAX + 1> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return fmt::format("process {} on {}", getpid(), host.data());
}

std::string holder(int file) {
  std::array<char, HOST_NAME_MAX + 64> text{};
  const ssize_t size = ::pread(file, text.data(), text.size(), 0);
  const std::string_view line(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  return line.empty() ? "another process" : std::string(line.substr(0, line.find('\n')));
}

}  // namespace

RunLock::RunLock(const std::string& folder) : path_((std::filesystem::path(folder) / "run.lock").string()) {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) throw std::system_error(errno, std::generic_category(), path_);
  if (::flock(file_, LOCK_EX | LOCK_NB) == 0) {
    // Only for people to read, so a failure such as a full disk does not matter.
    const std::string line = this_process() + "\n";
    if (::ftruncate(file_, 0) == 0) (void)!::pwrite(file_, line.data(), line.size(), 0);
    return;
  }
  const int reason = errno;
  const std::string who = reason == EWOULDBLOCK ? holder(file_) : "";
  ::close(file_);
  file_ = -1;
  if (reason == EWOULDBLOCK) {
    throw WrongUsage(
        fmt::format("--output {}: {} trains there (allowed: one run at a time for a folder; wait for it, "
                    "or give another --output)",
                    folder, who));
  }
  problem_ = fmt::format("{} cannot be locked: {}", path_, std::generic_category().message(reason));
}

RunLock::~RunLock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace actzip::train
