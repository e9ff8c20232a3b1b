#include "actzip/stream.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace actzip {
namespace {

class CountingExecutor final : public Executor {
 public:
  [[nodiscard]] int concurrency() const override { return 3; }
  void run(std::int64_t count, Task task, void* context) override {
    for (std::int64_t i = count; i-- > 0;) task(context, i);
  }
};

TEST(Stream, TheInlineExecutorRunsEveryTaskOnceOnTheCallingThread) {
  struct Seen {
    std::vector<std::int64_t> tasks;
    std::thread::id thread;
  } seen;
  inline_executor().run(
      5,
      [](void* context, std::int64_t i) {
        static_cast<Seen*>(context)->tasks.push_back(i);
        static_cast<Seen*>(context)->thread = std::this_thread::get_id();
      },
      &seen);
  EXPECT_EQ(seen.tasks, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(seen.thread, std::this_thread::get_id());
  EXPECT_EQ(inline_executor().concurrency(), 1);
}

TEST(Stream, TheInlineExecutorRunsNothingForNoTasks) {
  inline_executor().run(0, [](void*, std::int64_t) { FAIL(); }, nullptr);
}

TEST(Stream, ADefaultStreamIsTheCallingThread) {
  const Stream stream;
  EXPECT_EQ(stream.device(), Device::cpu());
  EXPECT_EQ(stream.handle(), nullptr);
  EXPECT_EQ(&stream.executor(), &inline_executor());
}

TEST(Stream, AStreamOnAnExecutorKeepsIt) {
  CountingExecutor executor;
  const Stream stream = Stream::cpu(executor);
  EXPECT_EQ(stream.device(), Device::cpu());
  EXPECT_EQ(&stream.executor(), &executor);
}

TEST(Stream, AStreamOfADeviceKeepsItsHandleAndIndex) {
  int handle = 0;
  const Stream stream = Stream::cuda(&handle, 2);
  EXPECT_EQ(stream.device(), Device::cuda(2));
  EXPECT_EQ(stream.handle(), &handle);
}

}  // namespace
}  // namespace actzip
