// Checks the pages of an LMDB before the library maps them.
#pragma once

#include <cstdint>
#include <filesystem>

namespace actzip::data::lmdb {

/// Checks that all pages of the database are inside its file. LMDB maps the file into memory and follows the page
/// numbers in it. In a truncated or damaged file they may point outside it, which would end the process. Reads the
/// header and every page of the trees, but not the separate pages of large records. Throws DataError if one of these
/// pages or a record is not in the file. The result holds as long as nobody changes the file. Returns the number of
/// readable entries.
std::uint64_t check_pages(const std::filesystem::path& file);

}  // namespace actzip::data::lmdb
