// What a run says while it goes on: JSON lines in a file, and lines for people on stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace actzip::train {

/// One JSON object a line, each written at once.
class MetricsFile {
 public:
  /// Writes nothing if `path` is empty. A resumed run keeps the lines up to its step and drops what an interrupted one
  /// wrote after its checkpoint; the file as it was is there until that is done. Throws std::system_error.
  MetricsFile(const std::string& path, std::int64_t resumed_step);
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  ~MetricsFile();

  /// Throws std::system_error if it cannot be written.
  void write(const nlohmann::ordered_json& line);

  /// Waits until all lines are on the disk, so that none is missing which a checkpoint counts. Throws
  /// std::system_error.
  void flush_to_disk();

 private:
  [[noreturn]] void fail() const;

  std::string path_;
  int file_ = -1;
};

/// One line that is updated on a terminal; elsewhere each is a line of its own. What cannot be shown is lost: no run
/// ends because nobody can read along.
class Console {
 public:
  Console();
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// What may be overwritten by the next.
  void progress(std::string_view text);
  /// Whether somebody who reads along would want to hear again: at first, then a second after the last time on a
  /// terminal, half a minute elsewhere.
  [[nodiscard]] bool is_progress_due() const;
  /// What stays.
  void say(std::string_view text);

 private:
  bool is_terminal_;
  bool has_progress_ = false;
  std::optional<std::chrono::steady_clock::time_point> last_progress_;
};

/// "[########--------]", this part of it full.
std::string bar(double part);

/// 1.5 GiB, 320 MiB, 12 KiB.
std::string bytes_text(std::size_t bytes);

}  // namespace actzip::train
