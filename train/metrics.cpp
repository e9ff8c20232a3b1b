#include "metrics.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace actzip::train {

namespace {

constexpr const char* kClearLine = "\r\x1b[K";

/// The lines of a metrics file up to `step`; a last line that was cut off is dropped as well.
std::string lines_up_to(const std::string& path, std::int64_t step) {
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || json.value("step", std::int64_t{0}) > step || json.value("kind", "") == "summary")
      continue;
    kept += line + "\n";
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, std::int64_t resumed_step) : path_(path) {
  if (path_.empty()) return;
  const std::string kept = resumed_step > 0 ? lines_up_to(path_, resumed_step) : std::string();
  file_.open(path_, std::ios::trunc);
  file_ << kept << std::flush;
  if (!file_) throw std::runtime_error(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
}

void MetricsFile::write(const nlohmann::ordered_json& line) {
  if (path_.empty()) return;
  file_ << line.dump() << "\n" << std::flush;
  if (!file_) throw std::runtime_error(fmt::format("cannot write {}: is the disk full?", path_));
}

Console::Console() : is_terminal_(isatty(STDERR_FILENO) == 1) {}

Console::~Console() {
  if (has_progress_) std::fputs(kClearLine, stderr);
}

void Console::progress(std::string_view text) {
  fmt::print(stderr, "{}{}{}", is_terminal_ ? kClearLine : "", text, is_terminal_ ? "" : "\n");
  std::fflush(stderr);
  has_progress_ = is_terminal_;
}

void Console::say(std::string_view text) {
  fmt::print(stderr, "{}{}\n", has_progress_ ? kClearLine : "", text);
  std::fflush(stderr);
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
