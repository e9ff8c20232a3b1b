// CPU threads for the program, lent to the codecs through the Executor interface.
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

/// Threads that can run at the same time on this machine, as far as this process may use it.
int available_threads();

}  // namespace actzip::cli
