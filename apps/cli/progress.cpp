#include "progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

namespace actzip::cli {
namespace {
constexpr const char* kClearLine = "\r\x1b[K";
}

StatusLine::StatusLine() : terminal_(isatty(STDERR_FILENO) == 1) {}

StatusLine::~StatusLine() {
  if (terminal_) std::fputs(kClearLine, stderr);
}

void StatusLine::show(std::string_view text) {
  if (terminal_) fmt::print(stderr, "{}{}", kClearLine, text);
  std::fflush(stderr);
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
