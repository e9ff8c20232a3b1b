// A folder with a folder of JPEGs for each class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "images.hpp"

namespace actzip::data {

/// Classes are numbered by their folders' names in order. Where `where` has train and val in it, those of train count
/// for both, so that a class without validation images shifts no label.
class FolderImages final : public ImageSource {
 public:
  /// Throws DataError.
  FolderImages(const std::filesystem::path& where, Split split);

  [[nodiscard]] std::size_t size() const override { return files_.size(); }
  [[nodiscard]] std::int64_t classes() const override { return static_cast<std::int64_t>(names_.size()); }
  [[nodiscard]] Example read(std::size_t index, const DecodeHint& hint) const override;
  [[nodiscard]] std::string name_of(std::size_t index) const override;  ///< below root(): "n01440764/cat.JPEG"
  [[nodiscard]] std::string kind() const override { return "folder of JPEGs"; }

  [[nodiscard]] const std::filesystem::path& root() const { return root_; }
  [[nodiscard]] const std::vector<std::string>& class_names() const { return names_; }
  [[nodiscard]] std::int64_t label_of(std::size_t index) const { return files_.at(index).label; }
  [[nodiscard]] std::uintmax_t bytes_of(std::size_t index) const;

  /// The file as it is. Throws DamagedRecord if it cannot be read.
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
