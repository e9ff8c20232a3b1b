// Files that are there as a whole or not at all.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace actzip::models {

/// A file beside `path` that takes its place when all is written and on the disk, and is removed otherwise. So `path`
/// holds what it held before or all of the new, whenever the process dies, and also if the disk is full. What is no
/// file, such as a pipe or /dev/null, keeps its place and is written to.
class Replacement {
 public:
  /// Throws std::system_error if it cannot be made.
  explicit Replacement(std::string path);
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;
  ~Replacement();

  /// Adds bytes at the end. A failure is kept for finish(), since who calls may be in the middle of something that must
  /// not be left half-way: torch's zip writer.
  void append(std::string_view bytes);

  /// Puts it into its place. Throws std::system_error for whatever failed first.
  void finish();

 private:
  void write_buffer();
  [[noreturn]] void fail() const;

  std::string path_, beside_;
  bool is_replaced_ = true;  ///< a file, which another one can take the place of
  std::string buffer_;       ///< archives are written in many small pieces
  int file_ = -1;
  int error_ = 0;
  bool is_done_ = false;
};

/// Removes what a replacement of `path` left whose process was killed. Nobody else may be writing it.
void remove_partial_file(const std::string& path);

/// All of a text as a file. Throws std::system_error.
void replace_file(const std::string& path, std::string_view text);

}  // namespace actzip::models
