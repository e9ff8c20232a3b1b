#include "folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "file.hpp"
#include "jpeg.hpp"

namespace actzip::data {
namespace {

namespace fs = std::filesystem;

bool is_jpeg_name(const fs::path& path) {
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending == ".jpg" || ending == ".jpeg";
}

std::vector<std::string> folders_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && !name.starts_with('.') && !name.ends_with(".lmdb")) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> jpegs_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (is_jpeg_name(entry.path())) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

FolderImages::FolderImages(const fs::path& where, Split split) : root_(where) {
  const fs::path train = where / "train";
  const fs::path validation = where / "val";
  const bool has_splits = fs::is_directory(train) || fs::is_directory(validation);
  if (has_splits) root_ = split == Split::train ? train : validation;
  if (!fs::is_directory(root_)) throw DataError(fmt::format("{}: no such folder", root_.string()));
  names_ = folders_in(has_splits && fs::is_directory(train) ? train : root_);

  for (const std::string& name : folders_in(root_)) {
    const auto place = std::ranges::lower_bound(names_, name);
    if (place == names_.end() || *place != name) {
      throw DataError(fmt::format("{}: class {} has no folder in {}", root_.string(), name, train.string()));
    }
    const auto label = static_cast<std::uint32_t>(place - names_.begin());
    for (std::string& file : jpegs_in(root_ / name)) files_.push_back({label, std::move(file)});
  }
  if (files_.empty()) {
    throw DataError(
        fmt::format("{}: no JPEGs (expected: a folder for each class, with *.jpg or *.jpeg in it)", root_.string()));
  }
}

std::string FolderImages::name_of(std::size_t index) const {
  const File& file = files_.at(index);
  return names_[file.label] + "/" + file.name;
}

std::uintmax_t FolderImages::bytes_of(std::size_t index) const {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(root_ / name_of(index), error);
  return error ? 0 : bytes;
}

std::vector<std::uint8_t> FolderImages::content_of(std::size_t index) const {
  try {
    return read_file(root_ / name_of(index));
  } catch (const DataError& error) {
    throw DamagedRecord(name_of(index), error.what());
  }
}

Example FolderImages::read(std::size_t index, const DecodeHint& hint) const {
  return {decode_jpeg(content_of(index), hint, name_of(index)), label_of(index)};
}

}  // namespace actzip::data
