// Memory runs out at each allocation of a step in turn: the error must reach the caller, no listener may be left,
// nothing may be held, and the next step must equal plain torch's bit for bit.
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "actzip/torch.hpp"
#include "hooks/engine.hpp"
#include "observe/running_operators.hpp"

namespace actzip::torch {
namespace {

namespace nn = ::torch::nn;
namespace F = ::torch::nn::functional;
using Gradients = std::vector<at::Tensor>;

/// torch's own allocator, except that allocation number `fails_in` from now on fails.
class ScarceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    ++count;
    if (fails_in > 0 && --fails_in == 0) C10_THROW_ERROR(OutOfMemoryError, "no memory, for the sake of a test");
    return inner_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* dest, const void* src, std::size_t count_of_bytes) const override {
    inner_->copy_data(dest, src, count_of_bytes);
  }

  int count = 0;
  int fails_in = 0;

 private:
  c10::Allocator* inner_ = c10::GetCPUAllocator();
};

/// Saves every kind of tensor: masks, values, indices, shapes, casts, memory that two operators save.
class Network : public nn::Module {
 public:
  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = embed_->forward(tokens);
    x = norm_->forward(x + second_->forward(at::relu(first_->forward(x))));
    at::Tensor y = at::hardtanh(conv_->forward(x.transpose(1, 2)), -1, 1);
    y = std::get<0>(at::max_pool1d_with_indices(y, 2));
    return at::gelu(at::leaky_relu(y.to(at::kBFloat16)).to(at::kFloat)).square().mean();
  }

 private:
  nn::Embedding embed_{register_module("embed", nn::Embedding(50, 32))};
  nn::Linear first_{register_module("first", nn::Linear(32, 64))};
  nn::Linear second_{register_module("second", nn::Linear(64, 32))};
  nn::LayerNorm norm_{register_module("norm", nn::LayerNorm(nn::LayerNormOptions({32})))};
  nn::Conv1d conv_{register_module("conv", nn::Conv1d(nn::Conv1dOptions(32, 32, 3).padding(1)))};
};

class TorchFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    static auto* allocator = [] {
      auto* made = new ScarceAllocator;
      c10::SetCPUAllocator(made, /*priority=*/1);
      return made;
    }();
    memory_ = allocator;
    ::torch::manual_seed(0);
    tokens_ = ::torch::randint(50, {8, 32});
  }
  void TearDown() override { memory_->fails_in = 0; }

  at::Tensor forward(Session* session) {
    std::optional<Scope> scope;
    if (session != nullptr) scope.emplace(session->impl());
    return network_.forward(tokens_.clone());  // a copy, because what a caller holds is kept as it is
  }
  Gradients backward(const at::Tensor& loss) { return ::torch::autograd::grad({loss}, network_.parameters()); }

  static bool same(const Gradients& a, const Gradients& b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (!at::equal(a[i], b[i])) return false;
    }
    return a.size() == b.size();
  }

  static void expect_clean(const Session& session) {
    EXPECT_EQ(who_saves().session, nullptr);
    EXPECT_EQ(memory_log(), nullptr);
    EXPECT_FALSE(is_listening(*session.impl()));
    EXPECT_EQ(session.live_bytes(), 0U);
  }

  ScarceAllocator* memory_ = nullptr;
  at::Tensor tokens_;
  Network network_;
};

TEST_F(TorchFaults, AtEachAllocationOfAStep) {
  const Gradients plain = backward(forward(nullptr));
  int injected = 0;
  for (const char* preset : {"exact", "default", "affine:4"}) {
    for (int n = 1;; ++n) {
      Session session({.preset = preset, .min_elems = 0});
      Session exact({.preset = "exact", .min_elems = 0});
      memory_->fails_in = n;
      std::optional<Gradients> found;  // some of torch's kernels work without memory that they cannot get
      try {
        found = backward(forward(&session));
      } catch (const c10::Error&) {
        found.reset();
      }
      const bool reached = memory_->fails_in == 0;
      memory_->fails_in = 0;
      expect_clean(session);
      if (!reached) break;
      ++injected;
      if (found && std::string_view(preset) == "exact") {
        EXPECT_TRUE(same(*found, plain)) << "allocation " << n;
      }
      EXPECT_TRUE(same(backward(forward(&exact)), plain)) << preset << ", allocation " << n;
      EXPECT_NO_THROW((void)backward(forward(&session)));
      expect_clean(session);
    }
  }
  EXPECT_GT(injected, 200);
  RecordProperty("injected", injected);
}

/// An allocation that only serves to observe a step may fail without ending the step: an observed step fails at no more
/// allocations than an unobserved one.
TEST_F(TorchFaults, AtEachAllocationThatObservesAStep) {
  const SessionOptions options{.min_elems = 0, .seed = 3, .adapt = "layer"};
  constexpr int kObserved = 2;  // number of the observed step
  const auto prepared = [&](int steps) {
    Session session(options);
    for (int i = 0; i < steps; ++i) (void)backward(forward(&session));
    return session;
  };
  // The same step, unobserved, in a session that does not adapt.
  SessionOptions unobserved = options;
  unobserved.adapt = "";
  Session other(unobserved);
  for (int i = 1; i < kObserved; ++i) (void)backward(forward(&other));
  const at::Tensor other_loss = forward(&other);
  memory_->count = 0;
  const Gradients expected = backward(other_loss);
  const int needed = memory_->count;

  int failures = 0;
  int swallowed = 0;
  for (int n = 1;; ++n) {
    Session session = prepared(kObserved - 1);
    const at::Tensor loss = forward(&session);
    memory_->fails_in = n;
    std::optional<Gradients> found;
    try {
      found = backward(loss);
    } catch (const c10::Error&) {
      ++failures;
    }
    const bool reached = memory_->fails_in == 0;
    memory_->fails_in = 0;
    if (found) {
      EXPECT_TRUE(same(*found, expected)) << "allocation " << n;
    }
    if (!reached) break;
    swallowed += found ? 1 : 0;
    EXPECT_NO_THROW((void)backward(forward(&session)));  // uses what was observed, or discards it
  }
  EXPECT_GT(failures, 0);
  EXPECT_LE(failures, needed) << "what was restored to observe a node may serve the next one";
  EXPECT_GT(swallowed, 20) << "the step was observed";
  RecordProperty("injected", failures + swallowed);
}

}  // namespace
}  // namespace actzip::torch
