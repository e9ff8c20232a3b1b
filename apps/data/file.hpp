// Reads files, as bytes and as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace actzip::data {

using Bytes = std::span<const std::uint8_t>;

/// A file for reading piece by piece. Several threads may read at once. It is not mapped into memory: with a mapping, a
/// failing disk or a shrinking file would end the process; this way it is an error.
class OpenFile {
 public:
  /// Throws DataError.
  explicit OpenFile(std::filesystem::path path);
  OpenFile(OpenFile&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, kClosed)), size_(other.size_) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::size_t size() const { return size_; }  ///< in bytes, at the time of opening

  /// Fills `target` with the bytes from offset `at` on. Returns their number, which is smaller than `target` only at
  /// the end of the file. Throws DataError.
  std::size_t read_some(std::size_t at, std::span<std::uint8_t> target) const;

  /// Like read_some(), but also throws DataError if the file ends too early.
  void read(std::size_t at, std::span<std::uint8_t> target) const;

 private:
  static constexpr int kClosed = -1;
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  int descriptor_ = kClosed;
  std::size_t size_ = 0;
};

/// Returns the CRC-32 of `bytes`, continuing from `before`, the CRC-32 of the bytes that precede them.
std::uint32_t checksum(Bytes bytes, std::uint32_t before = 0);

/// Returns the CRC-32 of numbers as they are in memory.
template <class T>
std::uint32_t checksum(const std::vector<T>& numbers, std::uint32_t before = 0) {
  return checksum(Bytes(reinterpret_cast<const std::uint8_t*>(numbers.data()), numbers.size() * sizeof(T)), before);
}

/// Reads a whole file; meant for small files. Throws DataError.
std::vector<std::uint8_t> read_file(const std::filesystem::path& path);

/// Reads a whole file as text, which must be valid UTF-8 and not empty. Throws DataError.
std::string read_text(const std::filesystem::path& path);

/// Splits a text into lines, without their line ends. Throws DataError if the last line has none: the file is
/// truncated.
std::vector<std::string_view> lines_of(const std::filesystem::path& path, std::string_view text);

/// Returns the file in a folder whose name ends with `ending`, or an empty path. Throws DataError if there are several.
std::filesystem::path find_by_ending(const std::filesystem::path& folder, std::string_view ending);

/// A character's length in bytes and its code point. The length is 0 if it is not valid UTF-8.
struct Character {
  std::size_t length = 0;
  char32_t code = 0;
};
Character next_character(std::string_view text);

}  // namespace actzip::data
