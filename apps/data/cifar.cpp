// Reads CIFAR's binary files: records of one or two labels and 1,024 red, green and blue values each.
#include <fmt/format.h>

#include <array>

#include "file.hpp"
#include "sources.hpp"

namespace actzip::data {
namespace {

namespace fs = std::filesystem;
constexpr int kSide = 32;
constexpr std::size_t kPlane = std::size_t{kSide} * kSide;
constexpr std::size_t kMostLabels = 2;

/// One of the two data sets: the names of its files and the number of labels before the pixels. The last label is used.
struct Form {
  const char* name;
  const char* folder;  ///< the folder that its archive unpacks to
  std::array<std::string_view, 5> train_files;
  std::string_view test_file;
  std::size_t labels;
  std::int64_t classes;

  [[nodiscard]] std::size_t record_bytes() const { return labels + 3 * kPlane; }
};

constexpr std::array<Form, 2> kForms = {{
    {"CIFAR-10",
     "cifar-10-batches-bin",
     {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
     "test_batch.bin",
     1,
     10},
    {"CIFAR-100", "cifar-100-binary", {"train.bin"}, "test.bin", 2, 100},
}};

struct Found {
  const Form* form = nullptr;
  fs::path folder;
};

Found find(const fs::path& folder) {
  for (const Form& form : kForms) {
    for (const fs::path& place : {folder, folder / form.folder}) {
      std::error_code ignored;
      if (fs::exists(place / form.train_files[0], ignored) || fs::exists(place / form.test_file, ignored)) {
        return {&form, place};
      }
    }
  }
  return {};
}

class Cifar final : public ImageSource {
 public:
  Cifar(const Form& form, const fs::path& folder, Split split) : form_(form) {
    const auto add = [&](std::string_view name) {
      files_.emplace_back(folder / name);
      if (files_.back().size() == 0) throw DataError(fmt::format("{}: empty", files_.back().path().string()));
      // An incomplete last record counts, too: reading it reports the damage.
      size_ += (files_.back().size() + form_.record_bytes() - 1) / form_.record_bytes();
      ends_.push_back(size_);
    };
    if (split == Split::validation) {
      add(form.test_file);
      return;
    }
    for (const std::string_view name : form.train_files) {
      if (!name.empty()) add(name);
    }
  }

  [[nodiscard]] std::size_t size() const override { return size_; }
  [[nodiscard]] std::int64_t classes() const override { return form_.classes; }
  [[nodiscard]] std::string kind() const override { return fmt::format("{}, binary files", form_.name); }

  [[nodiscard]] std::string name_of(std::size_t index) const override {
    const Place place = place_of(index);
    return fmt::format("{}, image {}", files_[place.file].path().filename().string(), place.record);
  }

  [[nodiscard]] Example read(std::size_t index, const DecodeHint& /*hint*/) const override {
    std::array<std::uint8_t, kMostLabels + 3 * kPlane> bytes;
    const std::size_t found = read_bytes(index, std::span(bytes).first(form_.record_bytes()));
    if (found < form_.record_bytes()) {
      throw DamagedRecord(name_of(index), fmt::format("truncated: {} bytes of {}", found, form_.record_bytes()));
    }
    const std::int64_t label = bytes[form_.labels - 1];
    if (label >= form_.classes) {
      throw DamagedRecord(name_of(index), fmt::format("label {} (allowed: 0 to {})", label, form_.classes - 1));
    }
    return {interleaved(Bytes(bytes).subspan(form_.labels)), label};
  }

 private:
  struct Place {
    std::size_t file, record;
  };

  [[nodiscard]] Place place_of(std::size_t index) const {
    std::size_t file = 0;
    while (index >= ends_.at(file)) ++file;
    return {file, file == 0 ? index : index - ends_[file - 1]};
  }

  std::size_t read_bytes(std::size_t index, std::span<std::uint8_t> target) const {
    const Place place = place_of(index);
    try {
      return files_[place.file].read_some(place.record * form_.record_bytes(), target);
    } catch (const DataError& error) {
      throw DamagedRecord(name_of(index), error.what());
    }
  }

  static Image interleaved(Bytes planes) {
    Image image{kSide, kSide, std::vector<std::uint8_t>(3 * kPlane)};
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t i = 0; i < kPlane; ++i) image.rgb[3 * i + c] = planes[c * kPlane + i];
    }
    return image;
  }

  const Form& form_;
  std::vector<OpenFile> files_;
  std::vector<std::size_t> ends_;  ///< for each file, the index after its last record
  std::size_t size_ = 0;
};

}  // namespace

bool holds_cifar(const fs::path& folder) { return find(folder).form != nullptr; }

std::unique_ptr<ImageSource> open_cifar(const fs::path& folder, Split split) {
  const Found found = find(folder);
  if (found.form == nullptr)
    throw DataError(fmt::format("{}: no binary files of CIFAR-10 or CIFAR-100", folder.string()));
  return std::make_unique<Cifar>(*found.form, found.folder, split);
}

}  // namespace actzip::data
