// Databases with changed bytes or a cut end: opening must throw DataError, or each record must be valid or damaged.
#include "data/lmdb.hpp"
#include "data/made_up.hpp"
#include "input_files.hpp"
#include "read_all.hpp"

namespace {

using namespace actzip;

/// With a tree of two levels and a record on pages of its own.
std::string whole_database() {
  const test::TemporaryFolder folder;
  for (int c = 0; c < 3; ++c) {
    for (int i = 0; i < 7; ++i) {
      folder.write("train/class" + std::to_string(c) + "/" + std::to_string(i) + ".jpg",
                   test::as_jpeg(test::smooth_image(8, 8, i)));
    }
  }
  folder.write("train/class1/large.jpg", test::as_jpeg(test::noisy_image(40, 40)));
  const auto database = data::lmdb_of_split(folder.path(), data::Split::train);
  data::write_lmdb(data::FolderImages(folder.path(), data::Split::train), database, [](std::size_t, std::size_t) {});
  return test::content_of(database / "data.mdb");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFiles files;
  static const std::string whole = whole_database();
  files.write("data.mdb", fuzz::changed(whole, fuzz::as_text(data, size)));
  try {
    fuzz::read_all(*data::open_lmdb(files.path()));
  } catch (const data::DataError&) {
    return 0;
  }
  return 0;
}
