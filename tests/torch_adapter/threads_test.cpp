// Threads share a model and sessions: some run forward, others run backward on the graphs that these make. Runs for
// ACTZIP_STRESS_SECONDS (3 by default), best under ThreadSanitizer: `make test-sanitize`.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actzip/torch.hpp"

namespace actzip::torch {
namespace {

namespace nn = ::torch::nn;
using Gradients = std::vector<at::Tensor>;

constexpr int kForwardThreads = 4;
constexpr int kBackwardThreads = 4;

class Network : public nn::Module {
 public:
  at::Tensor forward(const at::Tensor& tokens) {
    const at::Tensor x = embed_->forward(tokens);
    const at::Tensor h = norm_->forward(x + second_->forward(at::relu(first_->forward(x))));
    const at::Tensor low = h.to(at::kBFloat16);
    return at::gelu(at::hardtanh(low.to(at::kFloat), -1, 1)).square().mean() + at::leaky_relu(low).sum().to(at::kFloat);
  }

 private:
  nn::Embedding embed_{register_module("embed", nn::Embedding(50, 32))};
  nn::Linear first_{register_module("first", nn::Linear(32, 64))};
  nn::Linear second_{register_module("second", nn::Linear(64, 32))};
  nn::LayerNorm norm_{register_module("norm", nn::LayerNorm(nn::LayerNormOptions({32})))};
};

struct Graph {
  at::Tensor loss;
  bool is_exact = false;
};

class Stress {
 public:
  Stress() {
    ::torch::manual_seed(0);
    tokens_ = ::torch::randint(50, {8, 32});
    plain_ = gradients_of(network_.forward(tokens_));
    for (const SessionOptions& options : kinds()) shared_.push_back(std::make_unique<Session>(options));
  }

  void run(std::chrono::seconds duration) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kForwardThreads; ++i) threads.emplace_back([this, i] { forward(static_cast<unsigned>(i)); });
    for (int i = 0; i < kBackwardThreads; ++i) threads.emplace_back([this] { backward(); });
    std::this_thread::sleep_for(duration);
    is_over_ = true;
    for (std::thread& thread : threads) thread.join();
  }

  std::atomic<int> steps{0};
  std::atomic<int> faults{0};

 private:
  static std::vector<SessionOptions> kinds() {
    return {{.preset = "exact", .min_elems = 0},
            {.min_elems = 0},
            {.preset = "affine:4", .min_elems = 0},
            {.min_elems = 0, .adapt = "layer", .interval = 5}};
  }

  Gradients gradients_of(const at::Tensor& loss) { return ::torch::autograd::grad({loss}, network_.parameters()); }

  void forward(unsigned number) {
    std::mt19937 random(number);
    while (!is_over_) {
      const std::size_t kind = random() % shared_.size();
      const bool is_own = random() % 2 == 0;  // freed before backward
      auto own = is_own ? std::make_unique<Session>(kinds()[kind]) : nullptr;
      Session& session = is_own ? *own : *shared_[kind];
      at::Tensor loss;
      {
        const Scope scope = session.scope();
        if (random() % 4 == 0) const Scope inner = shared_[random() % shared_.size()]->scope();
        loss = network_.forward(tokens_);
      }
      if (random() % 8 == 0) (void)session.report().to_json();
      put({std::move(loss), kind == 0});
    }
  }

  void backward() {
    while (!is_over_) {
      Graph graph = take();
      if (!graph.loss.defined()) {
        std::this_thread::yield();
        continue;
      }
      const Gradients found = gradients_of(graph.loss);
      bool is_right = found.size() == plain_.size();
      for (std::size_t i = 0; is_right && graph.is_exact && i < found.size(); ++i)
        is_right = at::equal(found[i], plain_[i]);
      faults += is_right ? 0 : 1;
      ++steps;
    }
  }

  void put(Graph graph) {
    const std::lock_guard lock(mutex_);
    graphs_.push_back(std::move(graph));
    if (graphs_.size() > 2 * kForwardThreads) graphs_.pop_front();  // its backward never runs
  }

  Graph take() {
    const std::lock_guard lock(mutex_);
    if (graphs_.empty()) return {};
    Graph graph = std::move(graphs_.front());
    graphs_.pop_front();
    return graph;
  }

  Network network_;
  at::Tensor tokens_;
  Gradients plain_;
  std::vector<std::unique_ptr<Session>> shared_;
  std::atomic<bool> is_over_{false};
  std::mutex mutex_;
  std::deque<Graph> graphs_;
};

/// Graphs of all threads share the node that accumulates a parameter's gradient. A guard that adds hooks to it would do
/// so while other threads run it.
TEST(TorchThreads, GuardsLeaveTheNodesOfParametersAlone) {
  Network network;
  std::vector<decltype(::torch::autograd::impl::grad_accumulator({}))> nodes;
  for (const at::Tensor& parameter : network.parameters())
    nodes.push_back(::torch::autograd::impl::grad_accumulator(parameter));
  Session session({.min_elems = 0});
  const at::Tensor tokens = ::torch::randint(50, {8, 32});
  for (int i = 0; i < 3; ++i) {
    at::Tensor loss;
    {
      const Scope scope = session.scope();
      loss = network.forward(tokens);
    }
    loss.backward();
  }
  for (const auto& node : nodes) EXPECT_TRUE(node->post_hooks().empty());
}

std::chrono::seconds stress_duration() {
  const char* const text = std::getenv("ACTZIP_STRESS_SECONDS");
  return std::chrono::seconds(text != nullptr ? std::max(1, std::atoi(text)) : 3);
}

/// Two losses share a trunk, whose graph is retained. The guard looks at the trunk while both run backward through it.
TEST(TorchThreads, ShareAGraph) {
  at::set_num_threads(1);
  nn::Linear trunk(128, 128);
  const at::Tensor x = ::torch::randn({256, 128});
  const auto end = std::chrono::steady_clock::now() + stress_duration();
  int steps = 0;
  while (std::chrono::steady_clock::now() < end) {
    Session session;
    for (int i = 0; i < 3; ++i, ++steps) {
      std::vector<at::Tensor> losses;
      {
        const Scope scope = session.scope();
        const at::Tensor shared = at::gelu(trunk->forward(x));
        losses = {at::gelu(shared).square().mean(), at::silu(shared).sum()};
      }
      std::vector<std::thread> threads;
      for (const at::Tensor& loss : losses) {
        threads.emplace_back([loss, &trunk] {
          ::torch::autograd::grad({loss}, {trunk->weight}, /*grad_outputs=*/{}, /*retain_graph=*/true);
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
  }
  EXPECT_GT(steps, 0);
  std::printf("%d steps\n", steps);
}

TEST(TorchThreads, ShareAModelAndSessions) {
  at::set_num_threads(1);
  const std::chrono::seconds duration = stress_duration();
  Stress stress;
  stress.run(duration);
  EXPECT_GT(stress.steps, 0);
  EXPECT_EQ(stress.faults, 0);
  std::printf("%d steps in %d s\n", stress.steps.load(), static_cast<int>(duration.count()));
}

}  // namespace
}  // namespace actzip::torch
