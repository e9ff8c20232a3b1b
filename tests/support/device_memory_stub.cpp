// The CUDA side of a build without CUDA. It reports no devices, so nothing else is ever called.
#include <stdexcept>

#include "support/device_memory.hpp"

namespace actzip::testing {
namespace {
[[noreturn]] void no_cuda() { throw std::runtime_error("these tests were built without CUDA"); }
}  // namespace

int cuda_device_count() { return 0; }

namespace cuda_runtime {

void* allocate(std::size_t /*bytes*/) { no_cuda(); }
void release(void* /*memory*/) noexcept {}
void copy(void* /*dst*/, const void* /*src*/, std::size_t /*bytes*/) { no_cuda(); }
void fill(void* /*dst*/, std::uint8_t /*value*/, std::size_t /*bytes*/) { no_cuda(); }
std::size_t free_bytes() { no_cuda(); }
void* create_stream() { no_cuda(); }
void destroy_stream(void* /*stream*/) noexcept {}
void synchronize(void* /*stream*/) { no_cuda(); }
void begin_capture(void* /*stream*/) { no_cuda(); }
void* end_capture(void* /*stream*/) { no_cuda(); }
void launch_graph(void* /*graph*/, void* /*stream*/) { no_cuda(); }
void destroy_graph(void* /*graph*/) noexcept {}

}  // namespace cuda_runtime
}  // namespace actzip::testing
