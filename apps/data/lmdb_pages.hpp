// The pages of an LMDB, looked through before the library is given them.
#pragma once

#include <cstdint>
#include <filesystem>

namespace actzip::data::lmdb {

/// LMDB maps its file into memory and follows the numbers that it finds there: in a file that was cut or damaged they
/// lead outside, and end the process. This reads the head and every page of the trees, the records' own pages aside,
/// and throws DataError if one of them, or a record, does not lie in the file. What is found stays true as long as
/// nobody changes the file. Gives the number of entries that can be read.
std::uint64_t check_pages(const std::filesystem::path& file);

}  // namespace actzip::data::lmdb
