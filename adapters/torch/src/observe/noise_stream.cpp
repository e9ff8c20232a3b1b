#include "observe/noise_stream.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "actzip/codec.hpp"
#include "base/backward.hpp"
#include "base/convert.hpp"
#include "base/memory.hpp"
#include "observe/gradient_comparison.hpp"
#include "observe/replay.hpp"

namespace actzip::torch {

namespace {

using ::torch::autograd::Edge;
using ::torch::autograd::Node;

/// The site whose noise this thread tries now.
thread_local const SiteId* t_tried = nullptr;

class Trying {
 public:
  explicit Trying(const SiteId& site) { t_tried = &site; }
  Trying(const Trying&) = delete;
  Trying& operator=(const Trying&) = delete;
  ~Trying() { t_tried = nullptr; }
};

/// Runs the node again. Nothing if it may run only once, or if it fails.
std::optional<NoiseStream::Tensors> replayed(Node& node, NoiseStream::Tensors gradients,
                                             const NoiseStream::Tensors& sent) {
  return can_run_again(node) ? run_again(node, std::move(gradients), sent) : std::nullopt;
}

bool any_defined(const NoiseStream::Tensors& tensors) {
  return std::ranges::any_of(tensors, [](const at::Tensor& tensor) { return tensor.defined(); });
}

}  // namespace

bool is_trying() { return t_tried != nullptr || is_any_called(); }

at::Tensor as_tried(at::Tensor restored, SiteId site, const TrialNoise* trial) {
  if (t_tried == nullptr || !trial || !(*t_tried == site)) return restored;
  if (restored.is_complex())
    return at::view_as_complex(as_tried(at::view_as_real(restored.resolve_conj()), site, trial));
  const c10::OptionalDeviceGuard guard(restored.is_cpu() ? std::nullopt : std::optional(restored.device()));
  const at::Tensor noisy = at::empty_like(restored);
  const Stream stream = current_stream(restored.device());
  const auto dtype = *to_dtype(restored.scalar_type());
  const Device device = to_device(restored.device());
  const Shape shape = to_shape(restored);
  const std::size_t size = encoded_bytes(trial->spec, dtype, shape);
  const Allocation bytes = torch_memory().allocate(size, stream);
  encode(trial->spec, {restored.const_data_ptr(), dtype, shape, device}, {bytes.data, size, device}, trial->seed,
         stream);
  decode(trial->spec, {bytes.data, size, device}, {noisy.mutable_data_ptr(), dtype, to_shape(noisy), device},
         trial->seed, stream);
  return noisy;
}

void NoiseStream::watch(Node& node, std::span<const TriedSave> saves) {
  const std::lock_guard lock(mutex_);
  auto& known = records_[static_cast<std::size_t>(record_of(node))].saves;
  known.insert(known.end(), saves.begin(), saves.end());
}

int NoiseStream::record_of(Node& node) {
  const auto [place, is_new] = places_.try_emplace(&node, static_cast<int>(records_.size()));
  if (is_new) {
    records_.emplace_back();
    listen_to(node, [stream = shared_from_this(), &node](const auto& sent, const auto& received) {
      stream->pass(node, sent, received);
    });
  }
  return place->second;
}

int NoiseStream::child_of(Node& node, std::size_t edge) {
  const Edge& next = node.next_edge(edge);
  if (!next.is_valid()) return kNobody;
  return is_parameter(next) ? kLeaf : record_of(*next.function);
}

NoiseStream::SumId NoiseStream::sum(const at::Tensor& tensor) {
  if (!tensor.defined()) return kNoSum;
  sums_.push_back(norm_of(tensor));
  return static_cast<SumId>(sums_.size()) - 1;
}

std::vector<NoiseStream::SumId> NoiseStream::sums(const Tensors& tensors) {
  std::vector<SumId> ids;
  for (const at::Tensor& tensor : tensors) ids.push_back(sum(tensor));
  return ids;
}

at::Tensor NoiseStream::random_signs(at::IntArrayRef sizes, const at::Tensor& like) {
  constexpr std::uint64_t kSeed = 0x7369676E73ULL;
  const c10::Device device = like.device();
  const std::lock_guard lock(mutex_);
  auto& generator = generators_[device.str()];
  if (!generator.defined()) {
    generator = device.is_cpu()
                    ? at::detail::createCPUGenerator(kSeed)
                    : at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
    generator.set_current_seed(kSeed);
  }
  const auto options = like.options().dtype(c10::toRealValueType(like.scalar_type()));
  return at::empty(sizes, options).bernoulli_(0.5, generator).mul_(2).sub_(1);
}

/// Returns the noise behind the node. If the node may run only once, it is assumed to change the noise as much as the
/// gradient: the ratio of the two stays the same.
NoiseStream::Tensors NoiseStream::passed_on(Node& node, const Tensors& noise, const Tensors& sent,
                                            const Tensors& received) {
  if (!any_defined(noise)) return Tensors(sent.size());
  if (auto result = replayed(node, noise, sent)) return std::move(*result);
  Tensors guess(sent.size());
  for (std::size_t i = 0; i < noise.size() && i < received.size(); ++i) {
    if (!noise[i].defined() || !received[i].defined()) continue;
    const at::Tensor strength = norm_of(noise[i]) / norm_of(received[i]);
    for (std::size_t e = 0; e < sent.size(); ++e) {
      if (sent[e].defined()) guess[e] = sent[e] * random_signs(sent[e].sizes(), sent[e]) * strength;
    }
    break;
  }
  return guess;
}

/// Measures the gradient's own variance over batches. Rows count as examples; each gets a random sign.
void NoiseStream::look_at_rows(Node& node, const Tensors& sent, const Tensors& received) {
  if (is_cast_or_transposition(node)) return;  // counted at the node above
  std::vector<std::size_t> parameters;
  for (std::size_t e = 0; e < sent.size(); ++e) {
    if (sent[e].defined() && leads_to_parameter(node.next_edge(e))) parameters.push_back(e);
  }
  if (parameters.empty() || received.empty() || !received[0].defined() || received[0].dim() < 1) return;
  const std::int64_t rows = received[0].size(0);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(received[0].dim()), 1);
  sizes[0] = rows;
  Tensors drawn = received;
  drawn[0] = received[0] * random_signs(sizes, received[0]);
  const auto by_rows = replayed(node, std::move(drawn), sent);
  const std::lock_guard lock(mutex_);
  if (has_failed_) return;
  for (const std::size_t e : parameters) {
    const SumId whole = sum(sent[e]);
    leaves_.push_back({whole, by_rows ? sum((*by_rows)[e]) : whole, by_rows ? static_cast<double>(rows) : 1.0});
  }
}

/// Returns, for each save, the difference that its noise makes to what the node sends.
std::vector<NoiseStream::Tensors> NoiseStream::added_by(Node& node, std::span<const TriedSave> saves,
                                                        const Tensors& sent, const Tensors& received) {
  std::vector<Tensors> added;
  for (const TriedSave& save : saves) {
    const Trying trying(save.site);
    auto& differences = added.emplace_back(sent.size());
    const auto tried = replayed(node, received, sent);
    for (std::size_t e = 0; tried && e < sent.size(); ++e) {
      if ((*tried)[e].defined()) differences[e] = (*tried)[e] - sent[e];
    }
  }
  return added;
}

void NoiseStream::pass(Node& node, const Tensors& sent, const Tensors& received) noexcept {
  try {
    follow(node, sent, received);
  } catch (const std::exception&) {  // the observation is not worth a failed step of training
    forget_exception();
    give_up();
  }
}

void NoiseStream::give_up() noexcept {
  const std::lock_guard lock(mutex_);
  has_failed_ = true;
  for (Record& record : records_) record.noise.clear();
  sums_.clear();
  order_.clear();
  leaves_.clear();
}

void NoiseStream::follow(Node& node, const Tensors& sent, const Tensors& received) {
  const at::NoGradGuard no_graph;
  Tensors noise;
  std::vector<TriedSave> saves;
  int self = kNobody;
  {
    const std::lock_guard lock(mutex_);
    if (has_failed_) return;
    self = record_of(node);
    Record& record = record_at(self);
    if (std::exchange(record.is_done, true)) return;  // a retained graph may run again
    order_.push_back(self);
    noise = std::exchange(record.noise, {});
    saves = record.saves;
  }
  noise.resize(received.size());
  look_at_rows(node, sent, received);
  const Tensors passed = passed_on(node, noise, sent, received);
  const std::vector<Tensors> added = added_by(node, saves, sent, received);

  const std::lock_guard lock(mutex_);
  if (has_failed_) return;  // on another thread, meanwhile
  std::vector<int> children;
  for (std::size_t e = 0; e < sent.size(); ++e) children.push_back(child_of(node, e));
  Record& record = record_at(self);  // only now: adding records for the children may move it
  record.children = children;
  record.arrived = sums(noise);
  record.sent = sums(passed);
  for (const Tensors& tensors : added) record.added.push_back(sums(tensors));
  for (std::size_t e = 0; e < sent.size(); ++e) {
    if (children[e] < 0) continue;
    const auto input = static_cast<std::size_t>(node.next_edge(e).input_nr);
    arrive(record_at(children[e]), input, passed[e]);
    for (std::size_t i = 0; i < added.size(); ++i) {
      const at::Tensor& own = added[i][e];
      if (own.defined()) arrive(record_at(children[e]), input, own * saves[i].strength);
    }
  }
}

void NoiseStream::arrive(Record& record, std::size_t input, const at::Tensor& noise) {
  if (!noise.defined()) return;
  if (record.noise.size() <= input) record.noise.resize(input + 1);
  at::Tensor& place = record.noise[input];
  place = place.defined() ? place + noise : noise;  // not in place: a node may return the same tensor twice
}

bool NoiseStream::has_passed() const {
  const std::lock_guard lock(mutex_);
  return !order_.empty();
}

bool NoiseStream::has_failed() const {
  const std::lock_guard lock(mutex_);
  return has_failed_;
}

void NoiseStream::start_copies() {
  std::map<std::string, std::vector<SumId>> by_device;
  for (std::size_t i = 0; i < sums_.size(); ++i) by_device[sums_[i].device().str()].push_back(static_cast<SumId>(i));
  for (auto& [name, ids] : by_device) {
    std::vector<at::Tensor> parts;
    for (const SumId id : ids) parts.push_back(sums_[static_cast<std::size_t>(id)]);
    const c10::Device device = parts.front().device();
    const c10::OptionalDeviceGuard guard(device.is_cpu() ? std::nullopt : std::optional(device));
    const at::Tensor all = at::stack(parts);
    Copied copied{std::move(ids), all, std::nullopt};
    if (!device.is_cpu()) {
      copied.on_host = at::empty(all.sizes(), at::TensorOptions().dtype(at::kFloat).pinned_memory(true));
      copied.on_host.copy_(all, /*non_blocking=*/true);
      copied.done.emplace(device.type());
      copied.done->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    }
    copied_.push_back(std::move(copied));
  }
}

std::optional<Observation> NoiseStream::result(bool may_wait) {
  const std::lock_guard lock(mutex_);
  if (copied_.empty()) start_copies();
  for (const Copied& copied : copied_) {
    if (!copied.done) continue;
    if (!may_wait) return std::nullopt;
    copied.done->synchronize();
  }
  return evaluate();
}

std::vector<double> NoiseStream::squares() const {
  std::vector<double> values(sums_.size());
  for (const Copied& copied : copied_) {
    const auto* norms = copied.on_host.const_data_ptr<float>();
    for (std::size_t i = 0; i < copied.ids.size(); ++i) {
      const double norm = norms[i];
      values[static_cast<std::size_t>(copied.ids[i])] = norm * norm;
    }
  }
  return values;
}

Observation NoiseStream::evaluate() const {
  const std::vector<double> squared = squares();
  const auto square = [&](SumId id) { return id == kNoSum ? 0.0 : squared[static_cast<std::size_t>(id)]; };
  std::vector<double> gain(records_.size());  // variance of the gradient per squared norm of noise that arrives there
  const auto reaches = [&](const Record& record, const std::vector<SumId>& sums) {
    double variance = 0.0;
    for (std::size_t e = 0; e < sums.size(); ++e) {
      const int child = record.children[e];
      if (child == kLeaf) variance += square(sums[e]);
      if (child >= 0) variance += square(sums[e]) * gain[static_cast<std::size_t>(child)];
    }
    return variance;
  };
  for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
    const Record& record = records_[static_cast<std::size_t>(*at)];
    double arrived = 0.0;
    for (const SumId id : record.arrived) arrived += square(id);
    if (arrived > 0.0) gain[static_cast<std::size_t>(*at)] = reaches(record, record.sent) / arrived;
  }

  double energy = 0.0;
  double variance = 0.0;
  for (const LeafGradient& leaf : leaves_) {
    energy += square(leaf.whole);
    variance += square(leaf.by_rows) - square(leaf.whole) / leaf.rows;
  }
  Observation observation;
  if (!(energy > 0.0)) return observation;
  observation.gradient_variance = std::max(0.0, variance / energy);
  for (const int place : order_) {
    const Record& record = records_[static_cast<std::size_t>(place)];
    for (std::size_t i = 0; i < record.added.size(); ++i) {
      if (!can_be_known(record, i)) continue;
      observation.sites.push_back(
          {record.saves[i].site, reaches(record, record.added[i]) / record.saves[i].error / energy});
    }
  }
  return observation;
}

/// Of a node that may run only once, nothing is known about what it restores.
bool NoiseStream::can_be_known(const Record& record, std::size_t save) {
  return std::ranges::any_of(record.added[save], [](SumId id) { return id != kNoSum; });
}

}  // namespace actzip::torch
