// What a run says while it goes on: JSON lines in a file, and lines for people on stderr.
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace actzip::train {

/// One JSON object a line, each written at once.
class MetricsFile {
 public:
  /// Writes nothing if `path` is empty. A resumed run keeps the lines up to its step and drops what an interrupted one
  /// wrote after its checkpoint. Throws std::runtime_error.
  MetricsFile(const std::string& path, std::int64_t resumed_step);

  /// Throws std::runtime_error if it cannot be written.
  void write(const nlohmann::ordered_json& line);

 private:
  std::string path_;
  std::ofstream file_;
};

/// One line that is updated on a terminal; elsewhere each is a line of its own.
class Console {
 public:
  Console();
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// What may be overwritten by the next.
  void progress(std::string_view text);
  /// What stays.
  void say(std::string_view text);

 private:
  bool is_terminal_;
  bool has_progress_ = false;
};

/// "[########--------]", this part of it full.
std::string bar(double part);

/// 1.5 GiB, 320 MiB, 12 KiB.
std::string bytes_text(std::size_t bytes);

}  // namespace actzip::train
