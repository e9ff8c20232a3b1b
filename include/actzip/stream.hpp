// Where work runs: a CUDA stream, or an executor that lends the framework's CPU threads.
#pragma once

#include <cstdint>

#include "actzip/types.hpp"

namespace actzip {

/// Runs the tasks of one call on CPU threads. actzip owns no threads: an adapter forwards to its framework's pool, so
/// that no second pool competes with it.
class Executor {
 public:
  using Task = void (*)(void* context, std::int64_t index);

  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor() = default;

  /// How many tasks can run at the same time; at least 1.
  [[nodiscard]] virtual int concurrency() const = 0;

  /// Calls task(context, i) once for each i in [0, count), in any order and on any thread. Returns when all have
  /// finished. Tasks do not throw.
  virtual void run(std::int64_t count, Task task, void* context) = 0;
};

/// The executor that runs every task on the calling thread.
Executor& inline_executor() noexcept;

/// Where a call runs and in which order. On the CPU a call has finished when it returns; on CUDA it has been enqueued.
class Stream {
 public:
  /// CPU, on the calling thread.
  Stream() noexcept : executor_(&inline_executor()) {}

  /// CPU, on the threads of `executor`, which must outlive the call.
  static Stream cpu(Executor& executor) noexcept {
    Stream stream;
    stream.executor_ = &executor;
    return stream;
  }

  /// CUDA device `index`; `handle` is a cudaStream_t. The device must be the calling thread's current one.
  static Stream cuda(void* handle, int index = 0) noexcept {
    Stream stream;
    stream.device_ = Device::cuda(index);
    stream.handle_ = handle;
    return stream;
  }

  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] void* handle() const noexcept { return handle_; }
  [[nodiscard]] Executor& executor() const noexcept { return *executor_; }

 private:
  Device device_;
  void* handle_ = nullptr;
  Executor* executor_;
};

}  // namespace actzip
