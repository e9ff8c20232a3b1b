// Pickles of torch files: unpickle_tensors() must throw std::runtime_error or return tensors within their storage.
#include <algorithm>
#include <cstdlib>

#include "input_files.hpp"
#include "models/pickle.hpp"

namespace {

using namespace actzip::models;

constexpr std::int64_t kStorageBytes = 96;

/// Reads the first and the last element of a tensor, as whoever copies it would.
void touch(const PickledTensor& tensor) {
  const std::vector<std::uint8_t> storage(kStorageBytes);
  std::int64_t last = tensor.offset;
  for (std::size_t d = 0; d < tensor.sizes.size(); ++d) {
    if (tensor.sizes[d] == 0) return;
    last += (tensor.sizes[d] - 1) * tensor.strides[d];
  }
  const volatile std::uint8_t sum =
      storage.at(static_cast<std::size_t>(tensor.offset)) + storage.at(static_cast<std::size_t>(last));
  (void)sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  PickledTensors tensors;
  try {
    tensors = unpickle_tensors(actzip::fuzz::as_text(data, size), [](const std::string& record) -> std::size_t {
      if (record.empty()) throw std::runtime_error("no such record");
      return kStorageBytes;
    });
  } catch (const std::runtime_error&) {
    return 0;
  }
  for (const auto& [name, tensor] : tensors) touch(tensor);
  return 0;
}
