#include "actzip/stream.hpp"

namespace actzip {

namespace {

class InlineExecutor final : public Executor {
 public:
  [[nodiscard]] int concurrency() const override { return 1; }
  void run(std::int64_t count, Task task, void* context) override {
    for (std::int64_t i = 0; i < count; ++i) task(context, i);
  }
};

}  // namespace

Executor& inline_executor() noexcept {
  static InlineExecutor executor;
  return executor;
}

}  // namespace actzip
