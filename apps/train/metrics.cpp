#include "metrics.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "data/shallow_json.hpp"
#include "models/replacement.hpp"

namespace actzip::train {

namespace {

constexpr const char* kClearLine = "\r\x1b[K";

/// Whether a line is complete, belongs to one of the first `step` steps and is not the summary.
bool is_up_to(const std::string& line, std::int64_t step) {
  try {
    const auto json = data::parse_shallow_json(line);
    return json.at("step").get<std::int64_t>() <= step && json.at("kind").get<std::string>() != "summary";
  } catch (const std::exception&) {
    return false;
  }
}

/// Returns the lines of a metrics file up to `step`. Also drops a truncated last line.
std::string lines_up_to(const std::string& path, std::int64_t step) {
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    if (is_up_to(line, step)) kept += line + "\n";
  }
  return kept;
}

bool is_regular_file(int file) {
  struct stat facts = {};
  return ::fstat(file, &facts) == 0 && S_ISREG(facts.st_mode);
}

void show(std::string_view before, std::string_view text, std::string_view after) {
  std::fputs(fmt::format("{}{}{}", before, text, after).c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, std::int64_t resumed_step) : path_(path) {
  if (path_.empty()) return;
  const bool goes_on = resumed_step > 0 && std::filesystem::is_regular_file(path_);
  if (goes_on) models::replace_file(path_, lines_up_to(path_, resumed_step));
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (goes_on ? 0 : O_TRUNC), 0644);
  if (file_ < 0) fail();
}

MetricsFile::~MetricsFile() {
  if (file_ >= 0) ::close(file_);
}

void MetricsFile::fail() const { throw std::system_error(errno, std::generic_category(), path_); }

void MetricsFile::write(const nlohmann::ordered_json& line) {
  if (path_.empty()) return;
  const std::string text = line.dump() + "\n";
  for (std::string_view left = text; !left.empty();) {
    const ssize_t written = ::write(file_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail();
    left.remove_prefix(static_cast<std::size_t>(written));
  }
}

void MetricsFile::flush_to_disk() {
  if (!path_.empty() && is_regular_file(file_) && ::fsync(file_) != 0) fail();
}

Console::Console() : is_terminal_(isatty(STDERR_FILENO) == 1) {}

Console::~Console() {
  if (has_progress_) std::fputs(kClearLine, stderr);
}

void Console::progress(std::string_view text) {
  show(is_terminal_ ? kClearLine : "", text, is_terminal_ ? "" : "\n");
  has_progress_ = is_terminal_;
  last_progress_ = std::chrono::steady_clock::now();
}

bool Console::is_progress_due() const {
  if (!last_progress_) return true;
  const auto pause = is_terminal_ ? std::chrono::seconds(1) : std::chrono::seconds(30);
  return std::chrono::steady_clock::now() - *last_progress_ >= pause;
}

void Console::say(std::string_view text) {
  show(has_progress_ ? kClearLine : "", text, "\n");
  has_progress_ = false;
}

std::string bar(double part) {
  constexpr int kWidth = 20;
  const int full = static_cast<int>(std::lround(part * kWidth));
  return fmt::format("[{:#>{}}{:->{}}]", "", full, "", kWidth - full);
}

std::string bytes_text(std::size_t bytes) {
  constexpr double kKiB = 1024.0;
  const auto value = static_cast<double>(bytes);
  if (value >= kKiB * kKiB * kKiB) return fmt::format("{:.2f} GiB", value / (kKiB * kKiB * kKiB));
  if (value >= kKiB * kKiB) return fmt::format("{:.1f} MiB", value / (kKiB * kKiB));
  return fmt::format("{:.1f} KiB", value / kKiB);
}

}  // namespace actzip::train
