// Stores inputs as files, for parsers that open a path.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace actzip::fuzz {

/// A folder of this process, in /dev/shm if it exists; the destructor removes it.
class InputFiles {
 public:
  InputFiles() {
    const std::filesystem::path memory = "/dev/shm";
    std::string name = ((std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path()) /
                        "actzip_fuzz_XXXXXX")
                           .string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder: " + name);
    path_ = name;
  }
  InputFiles(const InputFiles&) = delete;
  InputFiles& operator=(const InputFiles&) = delete;
  ~InputFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Creates or overwrites a file. Its folder must exist.
  std::filesystem::path write(const std::string& name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Splits an input into several files at the separators. The last ones are empty if there are too few.
constexpr char kSeparator = '\x1e';
inline std::vector<std::string_view> parts_of(std::string_view input, std::size_t count) {
  std::vector<std::string_view> parts;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t end = i + 1 < count ? input.find(kSeparator) : std::string_view::npos;
    parts.push_back(input.substr(0, end));
    input = end == std::string_view::npos ? std::string_view() : input.substr(end + 1);
  }
  return parts;
}

/// Damages a valid file as the input says. The input begins with the new length (16 bits; 0: unchanged). Then follow
/// changes: an offset (16 bits), a byte that gives a length of 1 to 8, and as many bytes. For files in which changing
/// most bytes is not useful.
inline std::string changed(std::string content, std::string_view input) {
  const auto next = [&](std::size_t count) {
    const std::string_view bytes = input.substr(0, count);
    input.remove_prefix(bytes.size());
    return bytes;
  };
  const auto number = [&](std::size_t count) {
    std::size_t value = 0;
    for (const char byte : next(count)) value = value << 8U | static_cast<unsigned char>(byte);
    return value;
  };
  if (const std::size_t end = number(2); end != 0) content.resize(std::min(content.size(), end));
  while (!input.empty()) {
    const std::size_t at = number(2);
    const std::string_view change = next(1 + number(1) % 8);
    if (at + change.size() <= content.size()) content.replace(at, change.size(), change);
  }
  return content;
}

}  // namespace actzip::fuzz
