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

/// The levels that this build contains and this machine can run; never empty.
std::span<const CpuLevel> cpu_levels();

/// The level in use: the best available one, or the one that the environment variable ACTZIP_CPU_LEVEL names.
CpuLevel cpu_level();

/// Selects another level for all later calls, for tests and benchmarks. Do not call it while another thread encodes or
/// decodes. Throws Error(backend_unavailable) for a level that this machine cannot run.
void set_cpu_level(CpuLevel level);

/// What is known about CUDA here; `actzip doctor` prints it.
struct CudaStatus {
  bool built = false;       ///< this build has CUDA kernels
  int device_count = 0;     ///< devices that the driver reports
  int runtime_version = 0;  ///< in CUDA's numbering: 13000
  int driver_version = 0;
  std::string device_name;  ///< of device 0
  int capability = 0;       ///< of device 0: 90 for sm_90
  std::string problem;      ///< empty if kernels can run; otherwise what is missing and what to do
};
CudaStatus cuda_status();

/// Whether work enqueued on `stream` now goes into a CUDA graph. Never on the CPU.
bool is_capturing(const Stream& stream);

/// Enqueues on `stream`, a stream of that device, a copy between device memory and pinned host memory. Throws Error:
/// cuda_failure, backend_unavailable.
void copy_bytes(std::byte* dst, const std::byte* src, std::size_t bytes, const Stream& stream);

}  // namespace actzip
