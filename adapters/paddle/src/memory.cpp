#include "memory.hpp"

#include <omp.h>
#include <paddle/phi/core/allocator.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>

#include "actzip/error.hpp"

// Exported by all releases; the header that declares it needs another that Paddle 3.0 does not ship.
namespace paddle::memory {
std::shared_ptr<phi::Allocation> AllocShared(const phi::Place& place, std::size_t size);
}  // namespace paddle::memory

namespace actzip::paddle_adapter {

namespace {

/// A forked process has none of its parent's threads, and OpenMP would wait for them forever.
std::atomic<bool> g_forked{false};

class PaddleExecutor final : public Executor {
 public:
  PaddleExecutor() {
    pthread_atfork(nullptr, nullptr, [] { g_forked = true; });
  }

  [[nodiscard]] int concurrency() const override { return g_forked ? 1 : omp_get_max_threads(); }

  void run(std::int64_t count, Task task, void* context) override {
    if (concurrency() == 1) {
      for (std::int64_t i = 0; i < count; ++i) task(context, i);
      return;
    }
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) task(context, i);
  }
};

class PaddleMemory final : public Memory {
 public:
  Allocation allocate(std::size_t bytes, const Stream& stream) override {
    if (stream.device().kind != DeviceKind::cpu) {
      throw Error(ErrorCode::backend_unavailable, "actzip.paddle keeps tensors of the CPU (allowed: CPUPlace)");
    }
    auto owner = paddle::memory::AllocShared(phi::CPUPlace(), bytes);
    return {static_cast<std::byte*>(owner->ptr()), bytes, owner};
  }

  Allocation allocate_visible(std::size_t bytes, const Stream& stream) override {
    Allocation allocation = allocate(bytes, stream);
    std::memset(allocation.data, 0, bytes);
    return allocation;
  }

  // On the CPU a call has finished when it returns, so there is nothing to wait for.
  void hand_over(const Allocation& /*bytes*/, const Stream& /*writer*/, const Stream& /*reader*/) override {}
  std::shared_ptr<void> point_in(const Stream& /*stream*/) override { return nullptr; }
  void wait_for(const std::shared_ptr<void>& /*point*/) override {}
};

}  // namespace

Memory& paddle_memory() {
  static auto* memory = new PaddleMemory;  // never destroyed: what is kept may outlive the end of main()
  return *memory;
}

Stream cpu_stream() {
  static auto* executor = new PaddleExecutor;
  return Stream::cpu(*executor);
}

}  // namespace actzip::paddle_adapter
