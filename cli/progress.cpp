#include "progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

namespace actzip::cli {
namespace {
constexpr const char* kClearLine = "\r\x1b[K";
}

Progress::Progress(std::size_t total) : total_(total), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (terminal_) std::fputs(kClearLine, stderr);
}

void Progress::step(std::string_view what) {
  ++done_;
  const std::string line = fmt::format("[{}/{}] {}", done_, total_, what);
  std::fputs(terminal_ ? kClearLine : "", stderr);
  std::fputs(line.c_str(), stderr);
  std::fputs(terminal_ ? "" : "\n", stderr);
  std::fflush(stderr);
}

}  // namespace actzip::cli
