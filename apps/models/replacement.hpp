// Writes files atomically: a file has its old or its new content, never a part of it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace actzip::models {

/// Writes a new file next to `path` that replaces it once all is written and flushed to the disk. Removes the new file
/// otherwise. So `path` holds its old content or all of the new, whenever the process dies, and even if the disk is
/// full. Writes directly to anything that is not a regular file, such as a pipe or /dev/null.
class Replacement {
 public:
  /// Throws std::system_error if the file cannot be created.
  explicit Replacement(std::string path);
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;
  ~Replacement();

  /// Appends bytes. Remembers a failure for finish() instead of throwing, because the caller may be in the middle of an
  /// operation that must not be interrupted, such as torch's zip writer.
  void append(std::string_view bytes);

  /// Moves the file into place. Throws std::system_error for the first failure.
  void finish();

 private:
  void write_buffer();
  [[noreturn]] void fail() const;

  std::string path_, beside_;
  bool is_replaced_ = true;  ///< `path` is a regular file or new, so that it can be replaced
  std::string buffer_;       ///< collects the many small pieces in which archives are written
  int file_ = -1;
  int error_ = 0;
  bool is_done_ = false;
};

/// Removes the file that an unfinished Replacement of `path` left behind when its process was killed. Nobody else may
/// be writing to it.
void remove_partial_file(const std::string& path);

/// Replaces a file's content by `text`, atomically. Throws std::system_error.
void replace_file(const std::string& path, std::string_view text);

}  // namespace actzip::models
