// What a benchmark needs from a device beside the codecs: memory, data, a clock, a copy to compare with, and sums of
// errors. bench_cpu.cpp and bench_cuda.cu implement it; without CUDA, bench_cuda_stub.cpp says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actzip/actzip.hpp"

namespace actzip::cli {

/// Memory of a device, freed by the function that belongs to it.
using Memory = std::unique_ptr<std::byte, void (*)(std::byte*)>;

/// What is put into a tensor.
struct Content {
  enum class Kind : std::uint8_t { gaussian, relu, integers };
  Kind kind = Kind::gaussian;
  std::int64_t bound = 2;  ///< integers are drawn from [0, bound)
};

/// Sums over all elements, x the value that decoding should give and y the one it gave.
struct ErrorSums {
  double error = 0;   ///< (y - x)^2
  double signal = 0;  ///< x^2
  double cross = 0;   ///< x * (y - x)
};

struct DeviceFacts {
  std::string name;
  std::string driver;           ///< empty on the CPU
  std::size_t cache_bytes = 0;  ///< of the last level
  int threads = 1;              ///< CPU threads that work
};

class BenchDevice {
 public:
  BenchDevice() = default;
  BenchDevice(const BenchDevice&) = delete;
  BenchDevice& operator=(const BenchDevice&) = delete;
  virtual ~BenchDevice() = default;

  [[nodiscard]] virtual const DeviceFacts& facts() const = 0;
  [[nodiscard]] virtual Stream stream() = 0;

  /// Zeroed memory that starts at a multiple of 256 and may be read and written to the next multiple of 256.
  virtual Memory allocate(std::size_t bytes) = 0;

  /// Fills a dense tensor.
  virtual void fill(const TensorView& dst, Content content) = 0;

  /// Compares dense tensors of one size. For `mask` the value expected follows from the interval of the spec.
  virtual ErrorSums compare(const CodecSpec& spec, const ConstTensorView& original, const ConstTensorView& decoded) = 0;

  /// The fastest plain copy there is; in stream order. `src` may also be memory of the host.
  virtual void copy(std::byte* dst, const std::byte* src, std::size_t bytes) = 0;

  /// The cheapest thing that can be launched: an empty kernel, or on the CPU an empty task on every thread.
  virtual void launch_nothing() = 0;

  /// Milliseconds that `work` takes on the device, behind everything enqueued before.
  virtual double time_ms(const std::function<void()>& work) = 0;
};

std::unique_ptr<BenchDevice> make_cpu_device(int threads);

/// Device 0. Throws Error(backend_unavailable) where cuda_status() has a problem.
std::unique_ptr<BenchDevice> make_cuda_device();

}  // namespace actzip::cli
