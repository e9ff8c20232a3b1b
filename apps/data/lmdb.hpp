// Images in an LMDB: a folder with data.mdb, read by memory map. docs/data.md has its layout. Without the library these
// throw DataError that says so.
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

/// Whether the folder is a database.
bool holds_lmdb(const std::filesystem::path& folder);

/// Where the database of a split lies unless said otherwise: train.lmdb or val.lmdb in the folder.
std::filesystem::path lmdb_of_split(const std::filesystem::path& folder, Split split);

/// Opens a database that is complete. Throws DataError.
std::unique_ptr<ImageSource> open_lmdb(const std::filesystem::path& folder);

struct Conversion {
  std::size_t records = 0;           ///< in the database
  std::size_t found = 0;             ///< of the files, how many an earlier call had done
  std::vector<std::string> skipped;  ///< files that are no JPEG, as "name: why"
};

/// Called now and then, with the number of files done of all.
using ConversionProgress = std::function<void(std::size_t done, std::size_t all)>;

/// Copies the files of a folder into a database. It is made beside its place, in `output`.partial, and moved there when
/// it is complete: stopped at any time, it goes on from where it was when called again. Throws DataError: for a disk
/// that is full, for a partial database of other files, for one that another process writes.
Conversion write_lmdb(const FolderImages& images, const std::filesystem::path& output,
                      const ConversionProgress& progress);

}  // namespace actzip::data
