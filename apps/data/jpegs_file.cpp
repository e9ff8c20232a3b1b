// Reads a file of concatenated JPEGs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "jpeg.hpp"
#include "little_endian.hpp"
#include "sources.hpp"

namespace actzip::data {
namespace {

constexpr std::string_view kMagic = "JPGS";
constexpr std::size_t kFileHead = 8;
constexpr std::size_t kRecordHead = 5;

class JpegsFile final : public ImageSource {
 public:
  explicit JpegsFile(const std::filesystem::path& path) : file_(path) {
    std::array<std::uint8_t, kFileHead> head;
    if (file_.read_some(0, head) < kFileHead || std::memcmp(head.data(), kMagic.data(), kMagic.size()) != 0) {
      throw DataError(fmt::format("{}: does not begin with {} and a count of 32 bits", path.string(), kMagic));
    }
    const std::size_t count = little_endian<std::uint32_t>(head, kMagic.size());
    if (count == 0 || count > (file_.size() - kFileHead) / kRecordHead) {
      throw DataError(fmt::format("{}: {} images in {} bytes (allowed: 1 or more, and room for each)", path.string(),
                                  count, file_.size()));
    }
    find_records(count);
    if (classes_ == 0) throw DataError(fmt::format("{}: truncated: none of its images is whole", path.string()));
  }

  [[nodiscard]] std::size_t size() const override { return records_.size(); }
  [[nodiscard]] std::int64_t classes() const override { return classes_; }
  [[nodiscard]] std::string kind() const override { return "JPEGs in one file"; }

  [[nodiscard]] std::string name_of(std::size_t index) const override {
    return fmt::format("{}, image {}", file_.path().filename().string(), index);
  }

  [[nodiscard]] Example read(std::size_t index, const DecodeHint& hint) const override {
    const Record& record = records_.at(index);
    const std::string name = name_of(index);
    if (record.begin == kMissing) throw DamagedRecord(name, "truncated: the file ends before it does");
    return {decode_jpeg(content_of(record, name), hint, name), record.label};
  }

 private:
  static constexpr std::size_t kMissing = 0;  // no record begins at offset 0
  struct Record {
    std::size_t begin = kMissing;
    std::uint32_t length = 0;
    std::uint8_t label = 0;
  };

  [[nodiscard]] std::vector<std::uint8_t> content_of(const Record& record, const std::string& name) const {
    std::vector<std::uint8_t> content(record.length);
    try {
      file_.read(record.begin, content);
    } catch (const DataError& error) {
      throw DamagedRecord(name, error.what());
    }
    return content;
  }

  /// Finds where the records begin. In a truncated file, the rest stay kMissing, and read() reports them.
  void find_records(std::size_t count) {
    records_.resize(count);
    std::size_t at = kFileHead;
    for (Record& record : records_) {
      std::array<std::uint8_t, kRecordHead> head;
      if (file_.size() - at < kRecordHead || file_.read_some(at, head) < kRecordHead) return;
      const auto length = little_endian<std::uint32_t>(head, 1);
      if (length > file_.size() - kRecordHead - at) return;
      record = {at + kRecordHead, length, head[0]};
      classes_ = std::max<std::int64_t>(classes_, record.label + 1);
      at += kRecordHead + length;
    }
  }

  OpenFile file_;
  std::vector<Record> records_;
  std::int64_t classes_ = 0;
};

}  // namespace

std::unique_ptr<ImageSource> open_jpegs_file(const std::filesystem::path& file) {
  return std::make_unique<JpegsFile>(file);
}

}  // namespace actzip::data
