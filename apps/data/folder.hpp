// Images in a folder that has a subfolder of JPEGs for each class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "images.hpp"

namespace actzip::data {

/// Numbers the classes by the sorted names of their folders. If `where` contains train and val, the classes of train
/// apply to both, so that a class without validation images does not shift labels.
class FolderImages final : public ImageSource {
 public:
  /// Throws DataError.
  FolderImages(const std::filesystem::path& where, Split split);

  [[nodiscard]] std::size_t size() const override { return files_.size(); }
  [[nodiscard]] std::int64_t classes() const override { return static_cast<std::int64_t>(names_.size()); }
  [[nodiscard]] Example read(std::size_t index, const DecodeHint& hint) const override;
  [[nodiscard]] std::string name_of(std::size_t index) const override;  ///< relative to root(): "n01440764/cat.JPEG"
  [[nodiscard]] std::string kind() const override { return "folder of JPEGs"; }

  [[nodiscard]] const std::filesystem::path& root() const { return root_; }
  [[nodiscard]] const std::vector<std::string>& class_names() const { return names_; }
  [[nodiscard]] std::int64_t label_of(std::size_t index) const { return files_.at(index).label; }
  [[nodiscard]] std::uintmax_t bytes_of(std::size_t index) const;

  /// Returns the file's bytes. Throws DamagedRecord if it cannot be read.
  [[nodiscard]] std::vector<std::uint8_t> content_of(std::size_t index) const;

 private:
  struct File {
    std::uint32_t label = 0;
    std::string name;
  };

  std::filesystem::path root_;
  std::vector<std::string> names_;
  std::vector<File> files_;
};

}  // namespace actzip::data
