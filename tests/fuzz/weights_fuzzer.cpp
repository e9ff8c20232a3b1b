// Torch files as a whole, through torch's own zip reader, which has no sanitizers in it.
#include "actzip/error.hpp"
#include "input_files.hpp"
#include "models/weights.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace actzip;
  static const fuzz::InputFiles files;
  const auto path = files.write("weights.pt", fuzz::as_text(data, size));
  try {
    for (const auto& [name, tensor] : models::read_tensors(path.string())) {
      if (tensor.numel() < 1 << 20) (void)tensor.clone();
    }
  } catch (const Error&) {
    return 0;
  }
  return 0;
}
