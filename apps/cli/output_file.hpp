// A result file that is complete or not there: written beside its place, then moved into it.
#pragma once

#include <filesystem>
#include <fstream>
#include <string_view>

namespace actzip::cli {

class OutputFile {
 public:
  /// Opens the temporary file, so that a path that cannot be written is reported before the work begins.
  /// Throws std::runtime_error.
  explicit OutputFile(std::filesystem::path path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  /// Writes all of the file and moves it into its place. Throws std::runtime_error.
  void commit(std::string_view text);

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::ofstream stream_;
};

}  // namespace actzip::cli
