// Runs codec work on OpenMP threads through the Executor interface.
#pragma once

#include <cstdint>

#include "actzip/stream.hpp"

namespace actzip::cli {

class OpenMpExecutor final : public Executor {
 public:
  explicit OpenMpExecutor(int threads) : threads_(threads) {}

  [[nodiscard]] int concurrency() const override { return threads_; }
  void run(std::int64_t count, Task task, void* context) override;

 private:
  int threads_;
};

/// Returns the number of logical CPUs that this process may use.
int available_threads();

}  // namespace actzip::cli
