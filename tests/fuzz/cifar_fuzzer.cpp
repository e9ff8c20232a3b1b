// CIFAR's binary files with any length and content.
#include "data/sources.hpp"
#include "input_files.hpp"
#include "read_all.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace actzip;
  static const fuzz::InputFiles files;
  const auto parts = fuzz::parts_of(fuzz::as_text(data, size), 2);
  files.write("train.bin", parts[0]);
  files.write("test.bin", parts[1]);
  for (const data::Split split : {data::Split::train, data::Split::validation}) {
    try {
      fuzz::read_all(*data::open_cifar(files.path(), split));
    } catch (const data::DataError&) {
      continue;
    }
  }
  return 0;
}
