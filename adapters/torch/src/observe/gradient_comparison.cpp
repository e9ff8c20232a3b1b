#include "observe/gradient_comparison.hpp"

#include <ATen/SequenceNumber.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "base/backward.hpp"
#include "base/convert.hpp"
#include "observe/replay.hpp"

namespace actzip::torch {

namespace {

using ::torch::autograd::Edge;
using ::torch::autograd::FunctionPostHook;
using ::torch::autograd::Node;
using ::torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;
using SomeWitnesses = std::span<const std::shared_ptr<Witness>>;

/// Noise may make up this part of a gradient's squared norm. Usual models stay below 0.15; a lost gradient has 1.
constexpr double kMostNoise = 0.9;
/// A gradient whose elements each sum this many elements may cancel.
constexpr std::int64_t kSummed = 8;
/// Elements compared of a restored tensor.
constexpr std::int64_t kSample = std::int64_t{1} << 16U;

thread_local SomeWitnesses t_called;

class Calling {
 public:
  explicit Calling(SomeWitnesses witnesses) { t_called = witnesses; }
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;
  ~Calling() { t_called = {}; }
};

/// Takes equidistant slices along the longest dimension.
at::Tensor sample_of(const at::Tensor& tensor) {
  if (tensor.numel() <= kSample) return tensor;
  const at::IntArrayRef sizes = tensor.sizes();
  const auto longest = std::max_element(sizes.begin(), sizes.end());  // NOLINT: a range of torch's dangles
  const auto dimension = static_cast<std::int64_t>(longest - sizes.begin());
  return tensor.slice(dimension, 0, *longest, std::min(*longest, (tensor.numel() + kSample - 1) / kSample));
}

/// Waits for the whole gradient and corrects it. Holding the tensor that was sent keeps autograd from adding to it in
/// place: if the same tensor arrives, no other node contributed, and the node's own gradient is the whole.
class ArrivalHook final : public FunctionPostHook {
 public:
  ArrivalHook(std::shared_ptr<Expected> expected, at::Tensor sent, at::Tensor correction, std::uint32_t input)
      : expected_(std::move(expected)), sent_(std::move(sent)), correction_(std::move(correction)), input_(input) {}
  variable_list operator()(const variable_list& outputs, const variable_list& inputs) override {
    try {
      const at::NoGradGuard no_graph;
      if (has_arrived(inputs) && !inputs[input_].is_same(sent_)) {
        expected_->set_arrived(norm_of(inputs[input_] + correction_));
      }
    } catch (const std::exception&) {  // most likely memory ran out; the node's own gradient stays the measure
      forget_exception();
    }
    correction_.reset();
    sent_.reset();
    return outputs;
  }

 private:
  [[nodiscard]] bool has_arrived(const variable_list& inputs) const {
    const bool is_there = correction_.defined() && input_ < inputs.size() && inputs[input_].defined();
    return is_there && !is_in_transform() && has_plain_sizes(*inputs[input_].unsafeGetTensorImpl());
  }

  std::shared_ptr<Expected> expected_;
  at::Tensor sent_;
  at::Tensor correction_;
  std::uint32_t input_;
};

/// Where a node sends a gradient. It may send several to the same place, as for the factors of a square.
struct Target {
  Edge edge;
  at::Tensor sent;
  at::Tensor exact;
  Comparison::What what = Comparison::gradient;
};

at::Tensor added(const at::Tensor& sum, const at::Tensor& tensor) { return sum.defined() ? sum + tensor : tensor; }

/// The sum of the `gradients` that go to the target; undefined if there are none.
at::Tensor at_target(const Node& node, const Target& target, const Tensors& gradients) {
  at::Tensor sum;
  for (std::size_t e = 0; e < gradients.size(); ++e) {
    if (gradients[e].defined() && node.next_edge(e) == target.edge) sum = added(sum, gradients[e]);
  }
  return sum;
}

bool is_number(const at::Tensor& tensor) { return tensor.is_floating_point() || tensor.is_complex(); }

std::vector<Target> targets_of(const Node& node, const Tensors& sent, const Tensors& exact, std::int64_t elems) {
  std::vector<Target> targets;
  for (std::size_t e = 0; e < sent.size(); ++e) {
    const Edge& edge = node.next_edge(e);
    if (!edge.is_valid() || !sent[e].defined() || !exact[e].defined() || !is_number(sent[e])) continue;
    if (std::ranges::find(targets, edge, &Target::edge) != targets.end()) continue;
    Target target{.edge = edge, .sent = {}, .exact = {}};
    target.sent = at_target(node, target, sent);
    target.exact = at_target(node, target, exact);
    target.what = target.sent.numel() * kSummed <= elems ? Comparison::sum : Comparison::gradient;
    targets.push_back(std::move(target));
  }
  return targets;
}

/// A custom function may build a graph in its backward and run through it. That accumulates gradients, so it must not
/// happen twice.
bool can_be_asked_again(const Node& node, const Witness& witness) {
  return can_run_again(node) || witness.restored_at == at::sequence_number::peek();
}

}  // namespace

bool is_called(const Witness& witness) {
  return std::ranges::any_of(t_called, [&](const auto& called) { return called.get() == &witness; });
}

bool is_any_called() { return !t_called.empty(); }

void note_restored(Witness& witness, const at::Tensor& tensor) {
  if (!witness.saved.defined() || witness.restored || is_any_called()) return;
  const at::NoGradGuard no_graph;
  const at::Tensor saved = sample_of(witness.saved);
  witness.restored_at = at::sequence_number::peek();
  witness.restored =
      Comparison{Comparison::restored, norm_of(sample_of(tensor) - saved), std::make_shared<Expected>(norm_of(saved))};
}

Comparisons compare(Node& node, SomeWitnesses witnesses, const Tensors& sent, const Tensors& received) {
  const at::NoGradGuard no_graph;
  Comparisons result;
  Witnesses asked;
  for (const auto& witness : witnesses) {
    result.push_back(*witness->restored);
    if (!witness->is_linear && can_be_asked_again(node, *witness)) asked.push_back(witness);
  }
  if (asked.empty()) return result;
  const Calling calling(asked);
  const auto exact = run_again(node, received, sent);
  if (!exact) return {};
  const std::int64_t elems = received.empty() || !received[0].defined() ? 0 : received[0].numel();
  for (const Target& target : targets_of(node, sent, *exact, elems)) {
    at::Tensor correction = target.exact - target.sent;
    const auto expected = std::make_shared<Expected>(norm_of(target.exact));
    result.push_back({target.what, norm_of(correction), expected});
    // Graphs of other threads share a parameter's node and may run it while a hook is added. So the node's own gradient
    // is the measure here, which is stricter for a parameter that several nodes read.
    if (is_parameter(target.edge)) continue;
    target.edge.function->add_post_hook(
        std::make_unique<ArrivalHook>(expected, target.sent, std::move(correction), target.edge.input_nr));
  }
  return result;
}

void append_norms(const Comparisons& comparisons, std::vector<at::Tensor>& norms) {
  for (const Comparison& comparison : comparisons) {
    const Expected& expected = *comparison.expected;
    norms.insert(norms.end(), {comparison.difference, expected.own(), expected.arrived()});
  }
}

std::optional<bool> is_spoilt(const Comparisons& comparisons, std::span<const float> norms) {
  bool is_known = false;
  for (std::size_t i = 0; i < comparisons.size(); ++i) {
    const double difference = norms[3 * i], own = norms[3 * i + 1], arrived = norms[3 * i + 2];
    if (!std::isfinite(own)) continue;
    is_known = true;
    if (!std::isfinite(difference)) return true;
    const Comparison::What what = comparisons[i].what;
    const double expected = what == Comparison::gradient && std::isfinite(arrived) ? arrived : own;
    const double most = what == Comparison::gradient ? kMostNoise : 1.0;
    if (what != Comparison::sum && difference * difference > most * expected * expected) return true;
  }
  return is_known ? std::optional(false) : std::nullopt;
}

}  // namespace actzip::torch
