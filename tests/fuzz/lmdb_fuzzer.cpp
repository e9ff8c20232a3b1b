// Databases with some bytes changed or the end cut off: opening throws DataError, or every record is one or damaged.
// An input is where the file ends (16 bits, 0: where it does), then changes: a place (16 bits), a length of 1 to 8, and
// as many bytes.
#include <algorithm>

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
  std::string content = whole;
  std::string_view input = fuzz::as_text(data, size);
  const auto next = [&](std::size_t count) {
    const std::string_view bytes = input.substr(0, count);
    input.remove_prefix(bytes.size());
    return bytes;
  };
  const auto number = [&](std::size_t count) {
    std::size_t value = 0;
    for (const char byte : next(count)) value = value << 8U | static_cast<unsigned char>(byte);
    return value;
  };
  if (const std::size_t end = number(2); end != 0) content.resize(std::min(content.size(), end));
  while (!input.empty()) {
    const std::size_t at = number(2);
    const std::string_view change = next(1 + number(1) % 8);
    if (at < content.size())
      content.replace(at, std::min(change.size(), content.size() - at), change.substr(0, content.size() - at));
  }
  files.write("data.mdb", content);
  try {
    fuzz::read_all(*data::open_lmdb(files.path()));
  } catch (const data::DataError&) {
    return 0;
  }
  return 0;
}
