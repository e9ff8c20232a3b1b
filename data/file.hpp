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

/// A file in memory as it lies on the disk: pages come when they are read.
class MappedFile {
 public:
  /// Throws DataError.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  [[nodiscard]] Bytes bytes() const { return bytes_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  Bytes bytes_;
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
