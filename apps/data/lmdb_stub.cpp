// Replaces lmdb_reader.cpp and lmdb_writer.cpp in a build without LMDB.
#include "lmdb.hpp"

namespace actzip::data {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path) {
  throw DataError(path.string() + ": this build has no LMDB: install liblmdb-dev, configure and build again");
}

}  // namespace

std::unique_ptr<ImageSource> open_lmdb(const std::filesystem::path& folder) { fail(folder); }

Conversion write_lmdb(const FolderImages& /*images*/, const std::filesystem::path& output,
                      const ConversionProgress& /*progress*/) {
  fail(output);
}

}  // namespace actzip::data
