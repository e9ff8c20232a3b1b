#include "replacement.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

namespace actzip::models {

namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20U;
constexpr const char* kEnding = ".partial";

/// Flushes the folder of `path`, so that the new name is on the disk, too.
void flush_folder(const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;  // the folder may not be readable; the file itself is flushed
  ::fsync(file);
  ::close(file);
}

}  // namespace

Replacement::Replacement(std::string path) : path_(std::move(path)) {
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(path_, ignored);
  is_replaced_ = !is_there || std::filesystem::is_regular_file(path_, ignored);
  if (is_there && is_replaced_) path_ = std::filesystem::canonical(path_).string();  // a link's target
  beside_ = is_replaced_ ? path_ + kEnding : path_;
  file_ = ::open(beside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file_ >= 0) return;
  error_ = errno;
  fail();
}

Replacement::~Replacement() {
  if (file_ >= 0) ::close(file_);
  if (!is_done_ && is_replaced_) ::unlink(beside_.c_str());
}

void Replacement::fail() const { throw std::system_error(error_, std::generic_category(), path_); }

void Replacement::append(std::string_view bytes) {
  while (!bytes.empty() && error_ == 0) {
    const std::string_view part = bytes.substr(0, kBufferBytes - buffer_.size());
    buffer_ += part;
    bytes.remove_prefix(part.size());
    if (buffer_.size() == kBufferBytes) write_buffer();
  }
}

void Replacement::write_buffer() {
  std::string_view left = buffer_;
  while (!left.empty() && error_ == 0) {
    const ssize_t written = ::write(file_, left.data(), left.size());
    if (written < 0 && errno != EINTR) error_ = errno;
    if (written > 0) left.remove_prefix(static_cast<std::size_t>(written));
  }
  buffer_.clear();
}

void Replacement::finish() {
  write_buffer();
  if (error_ == 0 && is_replaced_ && ::fsync(file_) != 0) error_ = errno;
  if (::close(std::exchange(file_, -1)) != 0 && error_ == 0) error_ = errno;
  if (error_ == 0 && is_replaced_ && std::rename(beside_.c_str(), path_.c_str()) != 0) error_ = errno;
  if (error_ != 0) fail();
  is_done_ = true;
  if (is_replaced_) flush_folder(path_);
}

void remove_partial_file(const std::string& path) { ::unlink((path + kEnding).c_str()); }

void replace_file(const std::string& path, std::string_view text) {
  Replacement file(path);
  file.append(text);
  file.finish();
}

}  // namespace actzip::models
