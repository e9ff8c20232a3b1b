#include "base/backward.hpp"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <atomic>
#include <utility>

namespace actzip::torch {

namespace {

std::atomic<void (*)()> g_forget{nullptr};

}  // namespace

bool is_in_backward() {
  constexpr int kNoBackward = -1;
  return ::torch::autograd::get_current_graph_task_id() != kNoBackward;
}

void after_backward(std::function<void()> check) {
  if (!is_in_backward()) return check();
  ::torch::autograd::Engine::get_default_engine().queue_callback(std::move(check));
}

void refuse_compiled_autograd() {
  TORCH_CHECK(false,
              "actzip: compiled autograd cannot trace the backward of a step whose forward ran in a session (allowed: "
              "backward without compiled autograd; or actzip.compile(model) in place of the session)");
}

void forget_exception() {
  if (auto* const forget = g_forget.load(std::memory_order_acquire)) forget();
}

void set_exception_forgetter(void (*forget)()) { g_forget.store(forget, std::memory_order_release); }

}  // namespace actzip::torch
