// JPEGs one after the other in one file.
#include <fmt/format.h>

#include <algorithm>
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
    const Bytes bytes = file_.bytes();
    if (bytes.size() < kFileHead || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
      throw DataError(fmt::format("{}: does not begin with {} and a count of 32 bits", path.string(), kMagic));
    }
    const std::size_t count = little_endian<std::uint32_t>(bytes, kMagic.size());
    if (count == 0 || count > (bytes.size() - kFileHead) / kRecordHead) {
      throw DataError(fmt::format("{}: {} images in {} bytes (allowed: 1 or more, and room for each)", path.string(),
                                  count, bytes.size()));
    }
    find_records(count);
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
    return {decode_jpeg(file_.bytes().subspan(record.begin, record.length), hint, name), record.label};
  }

 private:
  static constexpr std::size_t kMissing = 0;  // no record begins where the file does
  struct Record {
    std::size_t begin = kMissing;
    std::uint32_t length = 0;
    std::uint8_t label = 0;
  };

  /// Those after the end of a file that was cut stay missing, and are reported when they are read.
  void find_records(std::size_t count) {
    const Bytes bytes = file_.bytes();
    records_.resize(count);
    std::size_t at = kFileHead;
    for (Record& record : records_) {
      if (bytes.size() - at < kRecordHead) return;
      const auto length = little_endian<std::uint32_t>(bytes, at + 1);
      if (bytes.size() - at - kRecordHead < length) return;
      record = {at + kRecordHead, length, bytes[at]};
      classes_ = std::max<std::int64_t>(classes_, record.label + 1);
      at += kRecordHead + length;
    }
  }

  MappedFile file_;
  std::vector<Record> records_;
  std::int64_t classes_ = 0;
};

}  // namespace

std::unique_ptr<ImageSource> open_jpegs_file(const std::filesystem::path& file) {
  return std::make_unique<JpegsFile>(file);
}

}  // namespace actzip::data
