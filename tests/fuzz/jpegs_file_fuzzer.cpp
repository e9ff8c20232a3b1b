// Files *.jpgs with arbitrary counts, lengths and labels.
#include "data/sources.hpp"
#include "input_files.hpp"
#include "read_all.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace actzip;
  static const fuzz::InputFiles files;
  const auto path = files.write("a.jpgs", fuzz::as_text(data, size));
  try {
    fuzz::read_all(*data::open_jpegs_file(path));
  } catch (const data::DataError&) {
    return 0;
  }
  return 0;
}
