#include "observe/gradient_comparison.hpp"

#include <ATen/SequenceNumber.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <limits>
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

/// A gradient whose elements each sum this many elements may cancel.
constexpr std::int64_t kSummed = 8;
/// Of so many features, one may hold most of a tensor.
constexpr std::int64_t kFeatures = 64;
/// Elements compared of a restored tensor.
constexpr std::int64_t kSample = std::int64_t{1} << 16U;

thread_local SomeWitnesses t_called;

/// Sequence number of the first node of this thread's step. Until one begins, no node is of this step.
thread_local std::uint64_t t_first_node = std::numeric_limits<std::uint64_t>::max();

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

/// Compares the features along `dimension` except for the largest. Large language models have some that are far larger
/// than all others. These get little noise themselves, but give much to others in their groups.
void compare_rest(const at::Tensor& exact, const at::Tensor& difference, std::int64_t dimension, Comparisons& result) {
  const std::int64_t few = exact.size(dimension) / kFeatures;
  if (few == 0 || exact.is_complex()) return;
  at::DimVector others;
  for (std::int64_t d = 0; d < exact.dim(); ++d) {
    if (d != dimension) others.push_back(d);
  }
  const at::Tensor norms = norms_of(exact, others);
  const at::Tensor largest = std::get<1>(norms.topk(few));
  const auto rest = [&](const at::Tensor& all) { return norm_of(all.index_fill(0, largest, 0)); };
  result.push_back({Comparison::rest, rest(norms_of(difference, others)), std::make_shared<Expected>(rest(norms))});
}

/// Features of a weight's gradient lie along one of its first two dimensions.
void compare_features(const at::Tensor& exact, const at::Tensor& difference, Comparisons& result) {
  if (exact.dim() < 2) return;
  compare_rest(exact, difference, 0, result);
  compare_rest(exact, difference, 1, result);
}

class ArrivalHook final : public FunctionPostHook {
 public:
  explicit ArrivalHook(std::shared_ptr<Arrival> arrival) : arrival_(std::move(arrival)) {}
  variable_list operator()(const variable_list& outputs, const variable_list& inputs) override {
    arrival_->hear(inputs);
    return outputs;
  }
  void compiled_args(::torch::dynamo::autograd::CompiledNodeArgs& /*args*/) const override {
    refuse_compiled_autograd();
  }

 private:
  std::shared_ptr<Arrival> arrival_;
};

/// Where a node sends a gradient. It may send several to the same place, as for the factors of a square.
struct Target {
  Edge edge;
  std::size_t place = 0;  ///< of the edge
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
    Target target{.edge = edge, .place = e, .sent = {}, .exact = {}};
    target.sent = at_target(node, target, sent);
    target.exact = at_target(node, target, exact);
    target.what = target.sent.numel() * kSummed <= elems ? Comparison::sum : Comparison::gradient;
    targets.push_back(std::move(target));
  }
  return targets;
}

/// A linear operator does not amplify noise. So of a new site it is enough that the tensor is restored well. Whether
/// the gradient of a weight nearly cancels shows later, while the network learns.
bool needs_replay(const Witness& witness) { return !witness.about.is_linear || !witness.about.is_new; }

bool are_linear(SomeWitnesses asked) {
  return std::ranges::all_of(asked, [](const auto& witness) { return witness->about.is_linear; });
}

/// How many elements a node received, if its sums over them may cancel by themselves; otherwise 0.
std::int64_t may_cancel_above(SomeWitnesses asked, const Tensors& received) {
  return are_linear(asked) || received.empty() || !received[0].defined() ? 0 : received[0].numel();
}

/// A custom function may build a graph in its backward and run through it. That accumulates gradients, so it must not
/// happen twice.
bool can_be_asked_again(const Node& node, const Witness& witness) {
  return can_run_again(node) || witness.restored()->next_node == at::sequence_number::peek();
}

}  // namespace

bool is_called(const Witness& witness) {
  return std::ranges::any_of(t_called, [&](const auto& called) { return called.get() == &witness; });
}

bool is_any_called() { return !t_called.empty(); }

at::Tensor Witness::saved() const {
  const std::lock_guard lock(mutex_);
  return saved_;
}

std::optional<Witness::Restored> Witness::restored() const {
  const std::lock_guard lock(mutex_);
  return restored_;
}

void Witness::note_restored(const at::Tensor& tensor) {
  const at::Tensor exact = saved();
  if (!exact.defined() || restored() || is_any_called()) return;
  const at::NoGradGuard no_graph;
  const at::Tensor sample = sample_of(exact);
  const at::Tensor difference = sample_of(tensor) - sample;
  Comparisons comparisons{{Comparison::restored, norm_of(difference), std::make_shared<Expected>(norm_of(sample))}};
  if (about.is_linear && sample.dim() >= 2) {
    compare_rest(sample, difference, sample.dim() - 1, comparisons);         // of a matrix
    if (sample.dim() > 2) compare_rest(sample, difference, 1, comparisons);  // of an image
  }
  const std::lock_guard lock(mutex_);
  if (!restored_) restored_ = Restored{std::move(comparisons), at::sequence_number::peek()};
}

bool Witness::take() {
  const std::lock_guard lock(mutex_);
  return !std::exchange(is_taken_, true);
}

void Witness::let_go() {
  at::Tensor saved;  // freed after the lock
  std::shared_ptr<void> room;
  const std::lock_guard lock(mutex_);
  saved = std::move(saved_);
  room = std::move(room_);
}

void Arrival::expect(Waiting waiting) {
  const std::lock_guard lock(mutex_);
  backward_ = ::torch::autograd::get_current_graph_task_id();
  waiting_ = std::move(waiting);
}

void Arrival::hear(const std::vector<at::Tensor>& received) {
  Waiting waiting;
  {
    const std::lock_guard lock(mutex_);
    if (!waiting_.sent.defined() || ::torch::autograd::get_current_graph_task_id() != backward_) return;
    waiting = std::exchange(waiting_, {});
  }
  try {
    const at::NoGradGuard no_graph;
    const bool is_there = input_ < received.size() && received[input_].defined() && !is_in_transform() &&
                          has_plain_sizes(*received[input_].unsafeGetTensorImpl());
    if (is_there && !received[input_].is_same(waiting.sent)) {
      waiting.expected->set_arrived(norm_of(received[input_] + waiting.correction));
    }
  } catch (const std::exception&) {  // most likely memory ran out; the node's own gradient stays the measure
    forget_exception();
  }
}

void begin_nodes() { t_first_node = at::sequence_number::peek(); }

Arrivals listen_below(Node& node) {
  Arrivals arrivals(node.num_outputs());
  for (std::size_t e = 0; e < arrivals.size(); ++e) {
    const Edge& next = node.next_edge(e);
    if (!next.is_valid() || is_parameter(next)) continue;
    Node& below = *next.function;
    if (below.thread_id() != at::RecordFunction::currentThreadId() || below.sequence_nr() < t_first_node) continue;
    arrivals[e] = std::make_shared<Arrival>(next.input_nr);
    below.add_post_hook(std::make_unique<ArrivalHook>(arrivals[e]));
  }
  return arrivals;
}

Comparisons compare(Node& node, SomeWitnesses witnesses, const Arrivals& arrivals, const Tensors& sent,
                    const Tensors& received) {
  const at::NoGradGuard no_graph;
  Comparisons result;
  Witnesses asked;
  for (const auto& witness : witnesses) {
    std::ranges::copy(witness->restored()->comparisons, std::back_inserter(result));
    if (needs_replay(*witness) && can_be_asked_again(node, *witness)) asked.push_back(witness);
  }
  if (asked.empty()) return result;
  const Calling calling(asked);
  const auto exact = run_again(node, received, sent);
  if (!exact) return {};
  for (const Target& target : targets_of(node, sent, *exact, may_cancel_above(asked, received))) {
    at::Tensor correction = target.exact - target.sent;
    const auto expected = std::make_shared<Expected>(norm_of(target.exact));
    result.push_back({target.what, norm_of(correction), expected});
    if (are_linear(asked)) compare_features(target.exact, correction, result);
    // Where nobody listens, the node's own gradient is the measure, which is stricter if other nodes send some as well.
    if (const auto& arrival = arrivals[target.place]) {
      arrival->expect({expected, target.sent, std::move(correction)});
    }
  }
  return result;
}

void append_norms(const Comparisons& comparisons, std::vector<at::Tensor>& norms) {
  for (const Comparison& comparison : comparisons) {
    const Expected& expected = *comparison.expected;
    norms.insert(norms.end(), {comparison.difference, expected.own(), expected.arrived()});
  }
}

std::optional<double> noise_of(const Comparisons& comparisons, std::span<const float> norms) {
  constexpr double kLost = std::numeric_limits<double>::infinity();
  constexpr double kAll = std::numeric_limits<double>::max();  ///< beside a gradient that is zero
  std::optional<double> most;
  for (std::size_t i = 0; i < comparisons.size(); ++i) {
    const double difference = norms[3 * i], own = norms[3 * i + 1], arrived = norms[3 * i + 2];
    if (!std::isfinite(own)) continue;
    if (!std::isfinite(difference)) return kLost;
    const Comparison::What what = comparisons[i].what;
    if (what == Comparison::restored && difference > own) return kLost;
    most = most.value_or(0.0);
    const bool is_part = what == Comparison::gradient || what == Comparison::rest;
    if (!is_part || difference == 0.0) continue;
    const double expected = std::isfinite(arrived) ? arrived : own;
    const double noise = expected > 0.0 ? difference * difference / (expected * expected) : kAll;
    most = std::max(*most, noise);
  }
  return most;
}

}  // namespace actzip::torch
