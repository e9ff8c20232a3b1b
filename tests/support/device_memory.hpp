// Memory and streams of the devices that tests run on. device_memory_cuda.cpp implements the CUDA side; in a build
// without CUDA, CMake chooses device_memory_stub.cpp. Failures throw std::runtime_error, which ends the test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "actzip/stream.hpp"
#include "actzip/types.hpp"

namespace actzip::testing {

using Bytes = std::vector<std::byte>;

inline constexpr Device kCudaDevice = Device::cuda();

/// Returns the number of CUDA devices that this build can use; 0 without CUDA or a driver.
int cuda_device_count();

/// Thin wrappers for the few CUDA runtime calls that tests need.
namespace cuda_runtime {
void* allocate(std::size_t bytes);
void release(void* memory) noexcept;
void copy(void* dst, const void* src, std::size_t bytes);  ///< in any direction; synchronous
void fill(void* dst, std::uint8_t value, std::size_t bytes);
std::size_t free_bytes();
void* create_stream();
void destroy_stream(void* stream) noexcept;
void synchronize(void* stream);
void begin_capture(void* stream);
void* end_capture(void* stream);  ///< returns an executable graph
void launch_graph(void* graph, void* stream);
void destroy_graph(void* graph) noexcept;
}  // namespace cuda_runtime

/// A buffer on a device, aligned to 256 bytes.
class DeviceBuffer {
 public:
  DeviceBuffer(Device device, std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  [[nodiscard]] Device device() const noexcept { return device_; }

  void write(std::size_t offset, std::span<const std::byte> source);
  void read(std::size_t offset, std::span<std::byte> target) const;
  [[nodiscard]] Bytes read(std::size_t offset, std::size_t bytes) const;
  void fill(std::uint8_t value);

 private:
  Device device_;
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

/// Creates and owns a stream on `device`. On the CPU, its work runs on `executor`.
class OwnedStream {
 public:
  explicit OwnedStream(Device device, Executor& executor = inline_executor());
  ~OwnedStream();
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;

  [[nodiscard]] const Stream& get() const noexcept { return stream_; }
  void synchronize() const;

 private:
  Stream stream_;
};

/// Records the work that `work` enqueues on a CUDA stream, and can replay it any number of times. The recording fails
/// if `work` synchronises or allocates.
class CudaGraph {
 public:
  CudaGraph(const OwnedStream& stream, const std::function<void()>& work);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch() const;

 private:
  void* stream_;
  void* graph_;
};

}  // namespace actzip::testing
