#include "base/memory.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <pthread.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "actzip/backend.hpp"
#include "actzip/error.hpp"

namespace actzip::torch {

namespace {

/// A forked process has none of its parent's pool threads, and OpenMP would wait for them forever.
std::atomic<bool> g_forked{false};

class TorchExecutor final : public Executor {
 public:
  TorchExecutor() {
    pthread_atfork(nullptr, nullptr, [] { g_forked = true; });
  }

  [[nodiscard]] int concurrency() const override { return g_forked ? 1 : at::get_num_threads(); }

  void run(std::int64_t count, Task task, void* context) override {
    if (concurrency() == 1) {
      for (std::int64_t i = 0; i < count; ++i) task(context, i);
      return;
    }
    at::parallel_for(0, count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) task(context, i);
    });
  }
};

c10::Device torch_device(const Stream& stream) {
  if (stream.device().kind == DeviceKind::cpu) return {c10::DeviceType::CPU};
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(stream.device().index)};
}

/// Returns the c10 stream with the handle of `stream`: torch's current or default stream if it is one of these,
/// otherwise a new wrapper.
c10::Stream torch_stream(const Stream& stream) {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  const c10::Device device = torch_device(stream);
  const c10::Stream current = guard.getStream(device);
  if (current.native_handle() == stream.handle()) return current;
  const c10::Stream standard = guard.getDefaultStream(device);
  if (standard.native_handle() == stream.handle()) return standard;
  // torch numbers foreign streams by their handle.
  return c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(stream.handle()));
}

Allocation own(c10::Storage storage) {
  auto owner = std::make_shared<OwnedStorage>(OwnedStorage{std::move(storage)});
  return {static_cast<std::byte*>(owner->storage.mutable_data()), owner->storage.nbytes(), owner};
}

/// Copies between a device and pinned memory. It uses two streams of torch's pool, and only c10's interfaces, so it
/// needs no CUDA library of torch's.
class TorchCopier final : public Copier {
 public:
  explicit TorchCopier(c10::Device device) : outward_(new_stream(device)), inward_(new_stream(device)) {}

  Allocation allocate_pinned(std::size_t bytes) override {
    try {
      const auto options = at::TensorOptions().dtype(at::kByte).device(at::kCPU).pinned_memory(true);
      return own(at::empty({static_cast<std::int64_t>(bytes)}, options).storage());
    } catch (const c10::Error& error) {
      throw Error(ErrorCode::store_failure, "store: torch gives no " + std::to_string(bytes) +
                                                " bytes of pinned memory: " + error.what_without_backtrace());
    }
  }

  [[nodiscard]] Stream outward() const override { return outward_; }
  [[nodiscard]] Stream inward() const override { return inward_; }

  void copy(std::byte* dst, const std::byte* src, std::size_t bytes, const Stream& stream) override {
    copy_bytes(dst, src, bytes, stream);
  }

  void let_wait(const Stream& stream, const std::shared_ptr<void>& point) override {
    static_cast<const c10::Event*>(point.get())->block(torch_stream(stream));
  }

  bool has_passed(const std::shared_ptr<void>& point) override {
    return static_cast<const c10::Event*>(point.get())->query();
  }

  void keep_for(const Allocation& bytes, const Stream& stream) override {
    const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
    guard.recordDataPtrOnStream(owner_of(bytes).storage.data_ptr(), torch_stream(stream));
  }

 private:
  /// From the pool of high-priority streams, which programs seldom use for their own work.
  static Stream new_stream(c10::Device device) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    const c10::Stream stream = guard.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
    return Stream::cuda(stream.native_handle(), device.index());
  }

  const Stream outward_;
  const Stream inward_;
};

class TorchMemory final : public Memory {
 public:
  Allocation allocate(std::size_t bytes, const Stream& stream) override {
    const c10::Device device = torch_device(stream);
    const c10::DeviceGuard guard(device);
    c10::Allocator* allocator = c10::GetAllocator(device.type());
    return own(c10::Storage(c10::Storage::use_byte_size_t{}, bytes, allocator->allocate(bytes), allocator, false));
  }

  /// In pinned memory: kernels can write it at the same address.
  Allocation allocate_visible(std::size_t bytes, const Stream& stream) override {
    const bool on_device = stream.device().kind != DeviceKind::cpu;
    const auto options = at::TensorOptions().dtype(at::kByte).device(at::kCPU).pinned_memory(on_device);
    return own(at::zeros({static_cast<std::int64_t>(bytes)}, options).storage());
  }

  void hand_over(const Allocation& bytes, const Stream& writer, const Stream& reader) override {
    const c10::Stream to = torch_stream(reader);
    c10::Event written(c10::DeviceType::CUDA);
    written.record(torch_stream(writer));
    written.block(to);
    const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
    guard.recordDataPtrOnStream(owner_of(bytes).storage.data_ptr(), to);
  }

  std::shared_ptr<void> point_in(const Stream& stream) override {
    const c10::Device device = torch_device(stream);
    if (device.is_cpu() || is_captured(device)) return nullptr;
    auto event = std::make_shared<c10::Event>(device.type());
    event->record(torch_stream(stream));
    return event;
  }

  void wait_for(const std::shared_ptr<void>& point) override { static_cast<c10::Event*>(point.get())->synchronize(); }

  Copier* copier(const Stream& stream) override {
    const c10::Device device = torch_device(stream);
    if (device.is_cpu() || is_captured(device)) return nullptr;
    const std::lock_guard lock(mutex_);
    auto& copier = copiers_[device.index()];
    if (!copier) copier = std::make_unique<TorchCopier>(device);
    return copier.get();
  }

  /// Counts what torch's allocator has cached as well as what the driver reports as free.
  [[nodiscard]] std::size_t available_bytes(const Stream& stream) const override {
    const c10::Device device = torch_device(stream);
    if (device.is_cpu()) return Memory::available_bytes(stream);
    c10::DeviceAllocator* const allocator = c10::getDeviceAllocator(device.type());
    const auto stats = allocator->getDeviceStats(device.index());
    constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const auto cached = stats.reserved_bytes[kAll].current - stats.allocated_bytes[kAll].current;
    return allocator->getMemoryInfo(device.index()).first + static_cast<std::size_t>(cached);
  }

  [[nodiscard]] bool untouched(const Allocation& bytes) const override {
    return owner_of(bytes).version.current_version() == 0;
  }

 private:
  std::mutex mutex_;
  std::map<c10::DeviceIndex, std::unique_ptr<TorchCopier>> copiers_;
};

}  // namespace

Memory& torch_memory() {
  static auto* memory = new TorchMemory;  // never destroyed: blobs may outlive the end of main()
  return *memory;
}

Stream current_stream(c10::Device device) {
  static auto* executor = new TorchExecutor;
  if (!device.is_cuda()) return Stream::cpu(*executor);
  const c10::impl::VirtualGuardImpl guard(device.type());
  return Stream::cuda(guard.getStream(device).native_handle(), device.index());
}

bool is_captured(c10::Device device) {
  const c10::OptionalDeviceGuard guard(device.is_cpu() ? std::nullopt : std::optional(device));
  return is_capturing(current_stream(device));
}

void record_on_current_stream(const c10::Storage& storage) {
  const c10::Device device = storage.device();
  if (!device.is_cuda()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.recordDataPtrOnStream(storage.data_ptr(), guard.getStream(device));
}

}  // namespace actzip::torch
