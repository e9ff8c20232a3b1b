// Files as bytes.
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

/// A file that is read piece by piece, by several threads if need be. It is not mapped into memory: there, a disk that
/// fails or a file that shrinks would end the process, and here it is an error.
class OpenFile {
 public:
  /// Throws DataError.
  explicit OpenFile(std::filesystem::path path);
  OpenFile(OpenFile&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, kClosed)), size_(other.size_) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::size_t size() const { return size_; }  ///< in bytes, when it was opened

  /// Fills `target` with the bytes from `at` on; gives how many there were, fewer only at the end of the file. Throws
  /// DataError.
  std::size_t read_some(std::size_t at, std::span<std::uint8_t> target) const;

  /// The same; fewer are an error, too.
  void read(std::size_t at, std::span<std::uint8_t> target) const;

 private:
  static constexpr int kClosed = -1;
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  int descriptor_ = kClosed;
  std::size_t size_ = 0;
};

/// The CRC-32 of some bytes behind those of `before`.
std::uint32_t checksum(Bytes bytes, std::uint32_t before = 0);

/// The same of numbers, as they lie in memory.
template <class T>
std::uint32_t checksum(const std::vector<T>& numbers, std::uint32_t before = 0) {
  return checksum(Bytes(reinterpret_cast<const std::uint8_t*>(numbers.data()), numbers.size() * sizeof(T)), before);
}

/// All of a file, for many small ones. Throws DataError.
std::vector<std::uint8_t> read_file(const std::filesystem::path& path);

/// The same as text, which must be valid UTF-8 and not empty.
std::string read_text(const std::filesystem::path& path);

/// The lines of a text without their ends. Throws DataError if the last one has none: the file was cut.
std::vector<std::string_view> lines_of(const std::filesystem::path& path, std::string_view text);

/// The one file in a folder whose name ends so; empty if there is none. Throws DataError if there are two.
std::filesystem::path find_by_ending(const std::filesystem::path& folder, std::string_view ending);

/// Length of the character that begins here, in bytes, and its code point; a length of 0 if it is not valid UTF-8.
struct Character {
  std::size_t length = 0;
  char32_t code = 0;
};
Character next_character(std::string_view text);

}  // namespace actzip::data
