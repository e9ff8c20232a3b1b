// What this build and this machine can run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "actzip/stream.hpp"

namespace actzip {

/// Instruction sets the CPU loops are built for, slowest first.
enum class CpuLevel : std::uint8_t { base, avx2, avx512 };

std::string_view to_string(CpuLevel level) noexcept;

/// Levels that this build has and this machine can run; never empty.
std::span<const CpuLevel> cpu_levels();

/// The level in use: the best there is, or the one that the environment variable ACTZIP_CPU_LEVEL names.
CpuLevel cpu_level();

/// Chooses another level for all later calls, for tests and benchmarks. Throws Error(backend_unavailable) for a level
/// this machine cannot run. Not to be called while another thread encodes or decodes.
void set_cpu_level(CpuLevel level);

/// The CUDA side as found: what `actzip doctor` prints.
struct CudaStatus {
  bool built = false;       ///< this build has CUDA kernels
  int device_count = 0;     ///< devices the driver shows
  int runtime_version = 0;  ///< as CUDA counts: 13000
  int driver_version = 0;
  std::string device_name;  ///< of device 0
  int capability = 0;       ///< of device 0: 90 for sm_90
  std::string problem;      ///< empty if kernels can run; else what is missing and what to do
};
CudaStatus cuda_status();

/// Whether what is enqueued on `stream` goes into a CUDA graph now. Never on the CPU.
bool is_capturing(const Stream& stream);

/// Enqueues a copy between the memory of a device and pinned memory of the host on `stream`, which is of that device.
/// Throws Error: cuda_failure, backend_unavailable.
void copy_bytes(std::byte* dst, const std::byte* src, std::size_t bytes, const Stream& stream);

}  // namespace actzip
