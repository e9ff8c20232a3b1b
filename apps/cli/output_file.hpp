// Writes a result file atomically: to a temporary file next to the target, which then replaces it.
#pragma once

#include <filesystem>
#include <fstream>
#include <string_view>

namespace actzip::cli {

class OutputFile {
 public:
  /// Opens the temporary file, so that an unwritable path is reported before the work begins. Throws
  /// std::runtime_error.
  explicit OutputFile(std::filesystem::path path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  /// Writes `text` as the whole file and moves it into place. Throws std::runtime_error.
  void commit(std::string_view text);

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::ofstream stream_;
};

}  // namespace actzip::cli
