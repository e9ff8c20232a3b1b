#include "file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "error.hpp"

namespace actzip::data {

OpenFile::OpenFile(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) fail();
  struct stat facts = {};
  const bool is_known = ::fstat(descriptor_, &facts) == 0;
  const int reason = errno;
  if (!is_known || !S_ISREG(facts.st_mode)) {
    ::close(std::exchange(descriptor_, kClosed));
    if (is_known) throw DataError(fmt::format("{}: not a file", path_.string()));
    errno = reason;
    fail();
  }
  size_ = static_cast<std::size_t>(facts.st_size);
}

OpenFile::~OpenFile() {
  if (descriptor_ != kClosed) ::close(descriptor_);
}

void OpenFile::fail() const { throw DataError(fmt::format("{}: {}", path_.string(), std::strerror(errno))); }

std::size_t OpenFile::read_some(std::size_t at, std::span<std::uint8_t> target) const {
  std::size_t done = 0;
  while (done < target.size()) {
    const ssize_t count =
        ::pread(descriptor_, target.data() + done, target.size() - done, static_cast<off_t>(at + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail();
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

void OpenFile::read(std::size_t at, std::span<std::uint8_t> target) const {
  if (read_some(at, target) == target.size()) return;
  throw DataError(fmt::format("{}: it ends before byte {}; it had {} when it was opened", path_.string(),
                              at + target.size(), size_));
}

std::uint32_t checksum(Bytes bytes, std::uint32_t before) {
  return static_cast<std::uint32_t>(::crc32_z(before, bytes.data(), bytes.size()));
}

std::vector<std::uint8_t> read_file(const std::filesystem::path& path) {
  const OpenFile file(path);
  std::vector<std::uint8_t> content(file.size());
  content.resize(file.read_some(0, content));  // it may have shrunk in the meantime
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
  // The lead bytes of sequences of 2, 3 and 4 bytes, and the least code point that may use each.
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
