// A CUDA device as a benchmark device.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <variant>

#include "bench_device.hpp"

namespace actzip::cli {
namespace {

constexpr int kBlock = 256;

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw Error(ErrorCode::cuda_failure, std::string(what) + ": " + cudaGetErrorString(status));
}

// ---- data -----------------------------------------------------------------------------------------------------------

/// Returns 64 random bits for a counter (SplitMix64's finaliser).
__device__ std::uint64_t random_bits(std::uint64_t counter) {
  std::uint64_t x = (counter + 1) * 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Box-Muller transform: makes a Gaussian number of two uniform ones, the first of which is never 0.
__device__ float gaussian(std::uint64_t counter) {
  const std::uint64_t bits = random_bits(counter);
  const float radius = (static_cast<float>(bits >> 40) + 0.5F) * 0x1p-24F;
  const float angle = static_cast<float>(bits & 0xffffffU) * 0x1p-24F;
  return sqrtf(-2.0F * logf(radius)) * cospif(2.0F * angle);
}

__device__ void store(void* data, DType dtype, std::int64_t i, float value) {
  switch (dtype) {
    case DType::f16: static_cast<__half*>(data)[i] = __float2half_rn(value); break;
    case DType::bf16: static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(value); break;
    default: static_cast<float*>(data)[i] = value; break;
  }
}

__device__ void store_integer(void* data, std::size_t bytes, std::int64_t i, std::int64_t value) {
  switch (bytes) {
    case 1: static_cast<std::uint8_t*>(data)[i] = static_cast<std::uint8_t>(value); break;
    case 2: static_cast<std::int16_t*>(data)[i] = static_cast<std::int16_t>(value); break;
    case 4: static_cast<std::int32_t*>(data)[i] = static_cast<std::int32_t>(value); break;
    default: static_cast<std::int64_t*>(data)[i] = value; break;
  }
}

__device__ double load(const void* data, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::f32: return static_cast<const float*>(data)[i];
    case DType::f16: return __half2float(static_cast<const __half*>(data)[i]);
    case DType::bf16: return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
    case DType::f64: return static_cast<const double*>(data)[i];
    case DType::boolean:
    case DType::u8: return static_cast<const std::uint8_t*>(data)[i];
    case DType::i8: return static_cast<const std::int8_t*>(data)[i];
    case DType::i16: return static_cast<const std::int16_t*>(data)[i];
    case DType::i32: return static_cast<const std::int32_t*>(data)[i];
    case DType::i64: return static_cast<double>(static_cast<const std::int64_t*>(data)[i]);
  }
  return 0;
}

__device__ std::int64_t first_elem() { return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ std::int64_t elem_stride() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

__global__ void fill_kernel(void* data, DType dtype, std::size_t elem_bytes, std::int64_t elems, Content content) {
  for (std::int64_t i = first_elem(); i < elems; i += elem_stride()) {
    const auto counter = static_cast<std::uint64_t>(i);
    if (content.kind == Content::Kind::integers) {
      const std::uint64_t bound = static_cast<std::uint64_t>(content.bound);
      store_integer(data, elem_bytes, i, static_cast<std::int64_t>((random_bits(counter) >> 1) % bound));
    } else {
      const float value = gaussian(counter);
      store(data, dtype, i, content.kind == Content::Kind::relu ? fmaxf(value, 0.0F) : value);
    }
  }
}

// ---- errors ---------------------------------------------------------------------------------------------------------

/// The expected decoded value: the original, or one of a mask's two values, chosen by its interval.
struct Expected {
  bool by_interval = false;
  Mask mask;

  __device__ double operator()(double x) const {
    if (!by_interval) return x;
    return x <= mask.lo || x >= mask.hi ? mask.off : mask.on;
  }
};

__device__ void add_over_warp(double value, double* total) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffU, value, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(total, value);
}

__global__ void compare_kernel(const void* original, DType original_type, const void* decoded, DType decoded_type,
                               std::int64_t elems, Expected expected, ErrorSums* total) {
  ErrorSums sums;
  for (std::int64_t i = first_elem(); i < elems; i += elem_stride()) {
    const double x = expected(load(original, original_type, i));
    const double error = load(decoded, decoded_type, i) - x;
    sums.error += error * error;
    sums.signal += x * x;
    sums.cross += x * error;
  }
  add_over_warp(sums.error, &total->error);
  add_over_warp(sums.signal, &total->signal);
  add_over_warp(sums.cross, &total->cross);
}

__global__ void empty_kernel() {}

// ---- the device -----------------------------------------------------------------------------------------------------

void free_memory(std::byte* memory) { (void)cudaFree(memory); }  // a failure here cannot be handled

/// Returns "580.65.06 (CUDA 13.0)", or "CUDA 13.0" if the system does not show the driver's version.
std::string driver_text() {
  int version = 0;
  check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
  const std::string cuda = "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  std::ifstream info("/proc/driver/nvidia/version");
  for (std::string word; info >> word;) {
    const bool number = word.find_first_not_of("0123456789.") == std::string::npos;
    if (number && word.find('.') != std::string::npos) return word + " (" + cuda + ")";
  }
  return cuda;
}

class CudaDevice final : public BenchDevice {
 public:
  CudaDevice() {
    const CudaStatus status = cuda_status();
    if (!status.problem.empty()) throw Error(ErrorCode::backend_unavailable, status.problem);
    check(cudaSetDevice(0), "cudaSetDevice(0)");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    facts_ = {properties.name, driver_text(), static_cast<std::size_t>(properties.l2CacheSize), 1};
    most_blocks_ = properties.multiProcessorCount * 16;
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreate(&start_), "cudaEventCreate");
    check(cudaEventCreate(&stop_), "cudaEventCreate");
  }

  ~CudaDevice() override {
    (void)cudaEventDestroy(stop_);
    (void)cudaEventDestroy(start_);
    (void)cudaStreamDestroy(stream_);
  }

  const DeviceFacts& facts() const override { return facts_; }
  Stream stream() override { return Stream::cuda(stream_); }

  Memory allocate(std::size_t bytes) override {
    const std::size_t size = std::max<std::size_t>((bytes + 255) / 256 * 256, 256);
    void* memory = nullptr;
    const std::string what = "cannot allocate " + std::to_string(size) + " bytes on " + facts_.name;
    check(cudaMalloc(&memory, size), what.c_str());
    Memory owned(static_cast<std::byte*>(memory), free_memory);
    check(cudaMemsetAsync(memory, 0, size, stream_), "cudaMemset");
    return owned;
  }

  void fill(const TensorView& dst, Content content) override {
    const std::int64_t elems = unique_elems(dst.shape);
    fill_kernel<<<blocks(elems), kBlock, 0, stream_>>>(dst.data, dst.dtype, dtype_bytes(dst.dtype), elems, content);
    check(cudaGetLastError(), "fill");
  }

  ErrorSums compare(const CodecSpec& spec, const ConstTensorView& original, const ConstTensorView& decoded) override {
    Expected expected;
    if (const auto* mask = std::get_if<Mask>(&spec)) expected = {true, *mask};
    const std::int64_t elems = unique_elems(original.shape);
    const Memory total = allocate(sizeof(ErrorSums));
    auto* device_sums = reinterpret_cast<ErrorSums*>(total.get());
    compare_kernel<<<blocks(elems), kBlock, 0, stream_>>>(original.data, original.dtype, decoded.data, decoded.dtype,
                                                          elems, expected, device_sums);
    check(cudaGetLastError(), "compare");
    ErrorSums sums;
    check(cudaMemcpyAsync(&sums, device_sums, sizeof(sums), cudaMemcpyDeviceToHost, stream_), "cudaMemcpy");
    check(cudaStreamSynchronize(stream_), "compare");
    return sums;
  }

  void copy(std::byte* dst, const std::byte* src, std::size_t bytes) override {
    check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream_), "cudaMemcpy");
  }

  void launch_nothing() override {
    empty_kernel<<<1, 32, 0, stream_>>>();
    check(cudaGetLastError(), "empty kernel");
  }

  double time_ms(const std::function<void()>& work) override {
    check(cudaEventRecord(start_, stream_), "cudaEventRecord");
    work();
    check(cudaEventRecord(stop_, stream_), "cudaEventRecord");
    check(cudaEventSynchronize(stop_), "a kernel of the benchmark failed");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start_, stop_), "cudaEventElapsedTime");
    return ms;
  }

 private:
  [[nodiscard]] int blocks(std::int64_t elems) const {
    return static_cast<int>(std::clamp<std::int64_t>((elems + kBlock - 1) / kBlock, 1, most_blocks_));
  }

  DeviceFacts facts_;
  int most_blocks_ = 1;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

}  // namespace

std::unique_ptr<BenchDevice> make_cuda_device() { return std::make_unique<CudaDevice>(); }

}  // namespace actzip::cli
