// The device interface of the benchmarks: memory, test data, a clock, a plain copy to compare with, and error sums.
// Implemented by bench_cpu.cpp and bench_cuda.cu; in a build without CUDA, make_cuda_device() of bench_cuda_stub.cpp
// throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actzip/actzip.hpp"

namespace actzip::cli {

/// Device memory with its matching deallocation function.
using Memory = std::unique_ptr<std::byte, void (*)(std::byte*)>;

/// The kind of data that fill() writes into a tensor.
struct Content {
  enum class Kind : std::uint8_t { gaussian, relu, integers };
  Kind kind = Kind::gaussian;
  std::int64_t bound = 2;  ///< integers are drawn from [0, bound)
};

/// Sums over all elements, where x is the expected value and y the decoded one.
struct ErrorSums {
  double error = 0;   ///< (y - x)^2
  double signal = 0;  ///< x^2
  double cross = 0;   ///< x * (y - x)
};

struct DeviceFacts {
  std::string name;
  std::string driver;           ///< empty on the CPU
  std::size_t cache_bytes = 0;  ///< of the last level
  int threads = 1;              ///< CPU threads in use
};

class BenchDevice {
 public:
  BenchDevice() = default;
  BenchDevice(const BenchDevice&) = delete;
  BenchDevice& operator=(const BenchDevice&) = delete;
  virtual ~BenchDevice() = default;

  [[nodiscard]] virtual const DeviceFacts& facts() const = 0;
  [[nodiscard]] virtual Stream stream() = 0;

  /// Returns zeroed memory, aligned to 256 bytes. Its size is rounded up to a multiple of 256, and all of it may be
  /// accessed.
  virtual Memory allocate(std::size_t bytes) = 0;

  /// Fills a dense tensor.
  virtual void fill(const TensorView& dst, Content content) = 0;

  /// Compares dense tensors of equal size. For `mask`, the interval of the spec determines the expected values.
  virtual ErrorSums compare(const CodecSpec& spec, const ConstTensorView& original, const ConstTensorView& decoded) = 0;

  /// Makes the fastest plain copy available, in stream order. `src` may also be host memory.
  virtual void copy(std::byte* dst, const std::byte* src, std::size_t bytes) = 0;

  /// Launches the cheapest possible work: an empty kernel, or on the CPU an empty task on every thread.
  virtual void launch_nothing() = 0;

  /// Returns the milliseconds that `work` takes on the device, after all work enqueued earlier.
  virtual double time_ms(const std::function<void()>& work) = 0;
};

std::unique_ptr<BenchDevice> make_cpu_device(int threads);

/// Uses device 0. Throws Error(backend_unavailable) if cuda_status() reports a problem.
std::unique_ptr<BenchDevice> make_cuda_device();

}  // namespace actzip::cli
