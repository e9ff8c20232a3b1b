// Torch files with changed bytes or a cut end: read_tensors() must throw Error or return tensors that can be copied. It
// uses torch's own zip reader, which is not built with sanitizers.
#include <ATen/ATen.h>

#include "actzip/error.hpp"
#include "data/made_up.hpp"
#include "input_files.hpp"
#include "models/weights.hpp"

/// torch's reader leaks memory when it refuses a file.
extern "C" const char* __lsan_default_suppressions() { return "leak:mz_zip_reader"; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace actzip;
  static const fuzz::InputFiles files;
  static const std::string path = (files.path() / "weights.pt").string();
  static const std::string whole = [] {
    models::write_tensors(path, {{"weight", at::ones({4, 3})}, {"bias", at::ones({3}, at::kHalf)}});
    return test::content_of(path);
  }();
  files.write("weights.pt", fuzz::changed(whole, fuzz::as_text(data, size)));
  try {
    for (const auto& [name, tensor] : models::read_tensors(path)) {
      if (tensor.numel() < 1 << 20) (void)tensor.clone();
    }
  } catch (const Error&) {
    return 0;
  }
  return 0;
}
