// What the CUDA runtime and driver report about this machine.
#include <cuda_runtime.h>

#include <string>

#include "actzip/backend.hpp"

namespace actzip {

CudaStatus cuda_status() {
  CudaStatus status;
  status.built = true;
  cudaRuntimeGetVersion(&status.runtime_version);
  cudaDriverGetVersion(&status.driver_version);
  const cudaError_t found = cudaGetDeviceCount(&status.device_count);
  if (found != cudaSuccess || status.device_count == 0) {
    status.device_count = 0;
    status.problem = std::string("no CUDA device: ") +
                     (found != cudaSuccess ? cudaGetErrorString(found) : "the driver shows none") +
                     "; install an NVIDIA driver that supports CUDA " + std::to_string(status.runtime_version / 1000) +
                     " or use the CPU";
    return status;
  }
  cudaDeviceProp properties = {};
  cudaGetDeviceProperties(&properties, 0);
  status.device_name = properties.name;
  status.capability = properties.major * 10 + properties.minor;
  if (status.capability < 80) {
    status.problem = "device 0 has compute capability " + std::to_string(properties.major) + "." +
                     std::to_string(properties.minor) + "; the kernels are built for 8.0 and up";
  }
  return status;
}

bool is_capturing(const Stream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (stream.device().kind == DeviceKind::cpu) return false;
  if (cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.handle()), &status) != cudaSuccess) {
    (void)cudaGetLastError();  // clears the error: later checks must not report this query
    return false;
  }
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace actzip
