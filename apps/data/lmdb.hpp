// Images in an LMDB, a folder with data.mdb that is read through a memory map. docs/data.md describes the layout. In a
// build without LMDB, open_lmdb() and write_lmdb() throw a DataError that says so.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "folder.hpp"
#include "images.hpp"

namespace actzip::data {

/// Whether the folder is an LMDB.
bool holds_lmdb(const std::filesystem::path& folder);

/// The default place of a split's database: train.lmdb or val.lmdb in the folder.
std::filesystem::path lmdb_of_split(const std::filesystem::path& folder, Split split);

/// Opens a complete database. Throws DataError.
std::unique_ptr<ImageSource> open_lmdb(const std::filesystem::path& folder);

struct Conversion {
  std::size_t records = 0;           ///< in the database
  std::size_t found = 0;             ///< files that an earlier call had already processed
  std::vector<std::string> skipped;  ///< files that are not JPEGs, as "name: why"
};

/// Called at intervals with the number of files done so far.
using ConversionProgress = std::function<void(std::size_t done, std::size_t all)>;

/// Copies the files of a folder into a database. Builds it in `output`.partial and renames it to `output` when it is
/// complete. If the process is stopped at any time, the next call resumes from the last commit. Throws DataError for a
/// full disk, for a partial database of other files, or if another process is writing it.
Conversion write_lmdb(const FolderImages& images, const std::filesystem::path& output,
                      const ConversionProgress& progress);

}  // namespace actzip::data
