// The parts of lmdb.hpp that do not need LMDB.
#include "lmdb.hpp"

namespace actzip::data {

bool holds_lmdb(const std::filesystem::path& folder) { return std::filesystem::is_regular_file(folder / "data.mdb"); }

std::filesystem::path lmdb_of_split(const std::filesystem::path& folder, Split split) {
  return folder / (split == Split::train ? "train.lmdb" : "val.lmdb");
}

}  // namespace actzip::data
