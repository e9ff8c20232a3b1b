#include "support/device_memory.hpp"

#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

namespace actzip::testing {
namespace {
constexpr std::align_val_t kAlignment{256};

bool on_cuda(Device device) { return device.kind == DeviceKind::cuda; }
}  // namespace

DeviceBuffer::DeviceBuffer(Device device, std::size_t bytes) : device_(device), bytes_(bytes) {
  data_ = static_cast<std::byte*>(on_cuda(device) ? cuda_runtime::allocate(bytes) : ::operator new(bytes, kAlignment));
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ == nullptr) return;
  if (on_cuda(device_)) {
    cuda_runtime::release(data_);
  } else {
    ::operator delete(data_, kAlignment);
  }
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : device_(other.device_), bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(bytes_, other.bytes_);
  std::swap(data_, other.data_);
  return *this;
}

void DeviceBuffer::write(std::size_t offset, std::span<const std::byte> source) {
  if (offset > bytes_ || source.size() > bytes_ - offset) throw std::out_of_range("DeviceBuffer::write");
  if (source.empty()) return;
  if (on_cuda(device_)) return cuda_runtime::copy(data_ + offset, source.data(), source.size());
  std::memcpy(data_ + offset, source.data(), source.size());
}

void DeviceBuffer::read(std::size_t offset, std::span<std::byte> target) const {
  if (offset > bytes_ || target.size() > bytes_ - offset) throw std::out_of_range("DeviceBuffer::read");
  if (target.empty()) return;
  if (on_cuda(device_)) return cuda_runtime::copy(target.data(), data_ + offset, target.size());
  std::memcpy(target.data(), data_ + offset, target.size());
}

Bytes DeviceBuffer::read(std::size_t offset, std::size_t bytes) const {
  Bytes result(bytes);
  read(offset, result);
  return result;
}

void DeviceBuffer::fill(std::uint8_t value) {
  if (bytes_ == 0) return;
  if (on_cuda(device_)) return cuda_runtime::fill(data_, value, bytes_);
  std::memset(data_, value, bytes_);
}

OwnedStream::OwnedStream(Device device, Executor& executor)
    : stream_(on_cuda(device) ? Stream::cuda(cuda_runtime::create_stream(), device.index) : Stream::cpu(executor)) {}

OwnedStream::~OwnedStream() {
  if (on_cuda(stream_.device())) cuda_runtime::destroy_stream(stream_.handle());
}

void OwnedStream::synchronize() const {
  if (on_cuda(stream_.device())) cuda_runtime::synchronize(stream_.handle());
}

CudaGraph::CudaGraph(const OwnedStream& stream, const std::function<void()>& work)
    : stream_(stream.get().handle()), graph_(nullptr) {
  cuda_runtime::begin_capture(stream_);
  try {
    work();
  } catch (...) {
    // The stream must not stay in capture mode. A second failure is ignored: the first one matters.
    try {
      cuda_runtime::destroy_graph(cuda_runtime::end_capture(stream_));
    } catch (const std::runtime_error&) {
    }
    throw;
  }
  graph_ = cuda_runtime::end_capture(stream_);
}

CudaGraph::~CudaGraph() { cuda_runtime::destroy_graph(graph_); }

void CudaGraph::launch() const { cuda_runtime::launch_graph(graph_, stream_); }

}  // namespace actzip::testing
