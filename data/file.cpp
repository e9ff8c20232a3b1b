#include "file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "error.hpp"

namespace actzip::data {
namespace {

/// An open file that is closed at the end.
class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& path)
      : path_(path), value_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (value_ < 0) fail();
    if (::fstat(value_, &facts_) != 0) fail_and_close();
    if (!S_ISREG(facts_.st_mode)) {
      ::close(value_);
      throw DataError(fmt::format("{}: not a file", path_.string()));
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(value_); }

  [[nodiscard]] int value() const { return value_; }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(facts_.st_size); }
  [[noreturn]] void fail() const { throw DataError(fmt::format("{}: {}", path_.string(), std::strerror(errno))); }

 private:
  [[noreturn]] void fail_and_close() const {
    const int reason = errno;
    ::close(value_);
    errno = reason;
    fail();
  }

  const std::filesystem::path& path_;
  int value_;
  struct stat facts_ = {};
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const Descriptor file(path_);
  if (file.size() == 0) return;  // nothing can be mapped of it
  void* address = ::mmap(nullptr, file.size(), PROT_READ, MAP_SHARED, file.value(), 0);
  if (address == MAP_FAILED) file.fail();
  bytes_ = {static_cast<const std::uint8_t*>(address), file.size()};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
}

std::uint32_t checksum(Bytes bytes, std::uint32_t before) {
  return static_cast<std::uint32_t>(::crc32_z(before, bytes.data(), bytes.size()));
}

std::vector<std::uint8_t> read_file(const std::filesystem::path& path) {
  const Descriptor file(path);
  std::vector<std::uint8_t> content(file.size());
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t count = ::read(file.value(), content.data() + done, content.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) file.fail();
    if (count == 0) break;  // it became shorter meanwhile
    done += static_cast<std::size_t>(count);
  }
  content.resize(done);
  return content;
}

std::string read_text(const std::filesystem::path& path) {
  const std::vector<std::uint8_t> content = read_file(path);
  std::string text(content.begin(), content.end());
  if (text.empty()) throw DataError(fmt::format("{}: empty", path.string()));
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = next_character(std::string_view(text).substr(at)).length;
    if (length == 0)
      throw DataError(fmt::format("{}: not a text in UTF-8: byte {} begins no character", path.string(), at));
    at += length;
  }
  return text;
}

std::vector<std::string_view> lines_of(const std::filesystem::path& path, std::string_view text) {
  if (!text.ends_with('\n')) {
    throw DataError(fmt::format("{}: truncated: its last line has no end", path.string()));
  }
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::filesystem::path find_by_ending(const std::filesystem::path& folder, std::string_view ending) {
  std::filesystem::path found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (!entry.path().filename().string().ends_with(ending)) continue;
    if (!found.empty()) {
      throw DataError(fmt::format("{}: both {} and {} end in {} (allowed: one)", folder.string(),
                                  found.filename().string(), entry.path().filename().string(), ending));
    }
    found = entry.path();
  }
  return found;
}

Character next_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return {};
  if (byte(0) < 0x80) return {1, byte(0)};
  // Lead bytes of 2, 3 and 4 bytes, and the least code that may be written so.
  struct Form {
    unsigned mask, lead;
    char32_t least;
  };
  constexpr std::array<Form, 3> kForms = {{{0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}}};
  for (std::size_t i = 0; i < kForms.size(); ++i) {
    const Form& form = kForms[i];
    if ((byte(0) & form.mask) != form.lead) continue;
    const std::size_t length = i + 2;
    if (text.size() < length) return {};
    char32_t code = byte(0) & ~form.mask & 0xffU;
    for (std::size_t k = 1; k < length; ++k) {
      if ((byte(k) & 0xc0U) != 0x80U) return {};
      code = code << 6U | (byte(k) & 0x3fU);
    }
    const bool surrogate = code >= 0xd800 && code <= 0xdfff;
    return code < form.least || surrogate || code > 0x10ffff ? Character{} : Character{length, code};
  }
  return {};
}

}  // namespace actzip::data
