// An executor that starts its own threads, in place of a framework's.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "actzip/stream.hpp"

namespace actzip::testing {

class ThreadExecutor final : public Executor {
 public:
  explicit ThreadExecutor(int threads) : threads_(threads) {}

  [[nodiscard]] int concurrency() const override { return threads_; }
  /// The number of tasks run so far; shows that work was handed out at all.
  [[nodiscard]] std::int64_t tasks() const { return tasks_; }

  void run(std::int64_t count, Task task, void* context) override {
    std::atomic<std::int64_t> next{0};
    const auto work = [&] {
      for (std::int64_t i = next++; i < count; i = next++) task(context, i);
    };
    std::vector<std::thread> pool;
    for (int i = 1; i < threads_; ++i) pool.emplace_back(work);
    work();
    for (std::thread& thread : pool) thread.join();
    tasks_ += count;
  }

 private:
  int threads_;
  std::int64_t tasks_ = 0;
};

}  // namespace actzip::testing
