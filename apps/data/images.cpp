#include "images.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <optional>

#include "file.hpp"
#include "folder.hpp"
#include "generated.hpp"
#include "lmdb.hpp"
#include "sources.hpp"

namespace actzip::data {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<ImageSource> open_folder(const fs::path& folder, Split split) {
  const bool train = split == Split::train;
  if (holds_lmdb(folder)) return open_lmdb(folder);
  if (const fs::path database = lmdb_of_split(folder, split); holds_lmdb(database)) return open_lmdb(database);
  if (holds_cifar(folder)) return open_cifar(folder, split);
  if (const fs::path file = find_by_ending(folder, train ? "-train.jpgs" : "-test.jpgs"); !file.empty()) {
    return open_jpegs_file(file);
  }
  return std::make_unique<FolderImages>(folder, split);
}

}  // namespace

std::unique_ptr<ImageSource> open_images(const std::string& where, Split split) {
  constexpr std::size_t kShapes = 10'000;
  if (const auto count = generated_count(where, "shapes", kShapes)) return open_shapes(*count, split);
  const fs::path path(where);
  if (fs::is_regular_file(path)) {
    if (path.extension() == ".jpgs") return open_jpegs_file(path);
    throw DataError(fmt::format("{}: a file (allowed: *.jpgs, a folder, or shapes[:COUNT])", where));
  }
  if (!fs::is_directory(path)) {
    throw DataError(
        fmt::format("'{}' is neither a folder nor a file (allowed: shapes[:COUNT], a file *.jpgs, or a folder "
                    "of CIFAR's binary files, of *.jpgs, of JPEGs by class, or with an LMDB)",
                    where));
  }
  return open_folder(path, split);
}

}  // namespace actzip::data
