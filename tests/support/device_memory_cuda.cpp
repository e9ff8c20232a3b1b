#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

#include "support/device_memory.hpp"

namespace actzip::testing {
namespace {
void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

cudaStream_t stream_of(void* handle) { return static_cast<cudaStream_t>(handle); }
}  // namespace

int cuda_device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

namespace cuda_runtime {

void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes == 0 ? 1 : bytes), "cudaMalloc");
  return memory;
}

void release(void* memory) noexcept { cudaFree(memory); }

// The streams of the tests do not wait for the default stream, on which plain copies run, so copies synchronise.
void copy(void* dst, const void* src, std::size_t bytes) {
  check(cudaMemcpy(dst, src, bytes, cudaMemcpyDefault), "cudaMemcpy");
  check(cudaDeviceSynchronize(), "cudaMemcpy");
}

void fill(void* dst, std::uint8_t value, std::size_t bytes) {
  check(cudaMemset(dst, value, bytes), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaMemset");
}

std::size_t free_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

void* create_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return stream;
}

void destroy_stream(void* stream) noexcept { cudaStreamDestroy(stream_of(stream)); }

void synchronize(void* stream) { check(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize"); }

void begin_capture(void* stream) {
  check(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
}

void* end_capture(void* stream) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream_of(stream), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "cudaGraphInstantiate");
  return executable;
}

void launch_graph(void* graph, void* stream) {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(stream)), "cudaGraphLaunch");
}

void destroy_graph(void* graph) noexcept {
  if (graph != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

}  // namespace cuda_runtime
}  // namespace actzip::testing
