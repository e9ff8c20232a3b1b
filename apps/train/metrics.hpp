// The output of a run while it trains: JSON lines in a file, and lines for people on stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace actzip::train {

/// A file of JSON objects, one per line, each written immediately.
class MetricsFile {
 public:
  /// Writes nothing if `path` is empty. A resumed run keeps the lines up to its step and drops those that the
  /// interrupted run wrote after its checkpoint; the shortened file replaces the old one atomically. Throws
  /// std::system_error.
  MetricsFile(const std::string& path, std::int64_t resumed_step);
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  ~MetricsFile();

  /// Appends a line. Throws std::system_error if it cannot be written.
  void write(const nlohmann::ordered_json& line);

  /// Waits until all lines are on the disk, so that a checkpoint never counts a line that is missing. Throws
  /// std::system_error.
  void flush_to_disk();

 private:
  [[noreturn]] void fail() const;

  std::string path_;
  int file_ = -1;
};

/// Shows progress on stderr: one updating line on a terminal, separate lines elsewhere. Ignores write errors, so that
/// no run ends because its output cannot be shown.
class Console {
 public:
  Console();
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// Shows a text that the next output may overwrite.
  void progress(std::string_view text);
  /// Whether it is time to show progress again: at the beginning, then one second after the last progress on a
  /// terminal, and half a minute elsewhere.
  [[nodiscard]] bool is_progress_due() const;
  /// Shows a text that stays.
  void say(std::string_view text);

 private:
  bool is_terminal_;
  bool has_progress_ = false;
  std::optional<std::chrono::steady_clock::time_point> last_progress_;
};

/// Draws "[########--------]", filled to `part`, a number from 0 to 1.
std::string bar(double part);

/// Formats a size: "1.50 GiB", "320.0 MiB", "12.0 KiB".
std::string bytes_text(std::size_t bytes);

}  // namespace actzip::train
