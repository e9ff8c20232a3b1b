// Copies between a device and pinned host memory.
#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "actzip/backend.hpp"
#include "actzip/error.hpp"

namespace actzip {

void copy_bytes(std::byte* dst, const std::byte* src, std::size_t bytes, const Stream& stream) {
  const cudaError_t status =
      cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream.handle()));
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // clears the error, which is reported here
  throw Error(ErrorCode::cuda_failure, "cuda: a copy of " + std::to_string(bytes) +
                                           " bytes between device and host is refused: " + cudaGetErrorString(status));
}

}  // namespace actzip
