#include "observe/gradient_guard.hpp"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <iterator>
#include <span>
#include <utility>

#include "base/backward.hpp"
#include "base/convert.hpp"
#include "base/memory.hpp"
#include "observe/replay.hpp"

namespace actzip::torch {

namespace {

using ::torch::autograd::Node;

/// The witnesses of one step may take kFewBytes, or 1 / kPartOfHeld of what a plain step holds if that is more.
constexpr std::size_t kFewBytes = std::size_t{16} << 20U;
constexpr std::size_t kPartOfHeld = 50;

/// Copies once per device rather than once per number. A step may begin inside a mode or a transform, which must not
/// see these copies.
std::vector<float> on_host(const std::vector<at::Tensor>& numbers) {
  const c10::impl::ExcludeDispatchKeyGuard plainly(c10::DispatchKeySet(
      {c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode,
       c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
  std::vector<float> values;
  for (std::size_t i = 0; i < numbers.size();) {
    std::vector<at::Tensor> alike;
    const c10::Device device = numbers[i].device();
    for (; i < numbers.size() && numbers[i].device() == device; ++i) alike.push_back(numbers[i]);
    const at::Tensor copied = at::stack(alike).cpu();
    values.insert(values.end(), copied.const_data_ptr<float>(), copied.const_data_ptr<float>() + copied.numel());
  }
  return values;
}

/// A subclass or a nested tensor may not support the arithmetic of a comparison.
bool are_plain(const std::vector<at::Tensor>& gradients) {
  return std::ranges::all_of(gradients, [](const at::Tensor& gradient) {
    return !gradient.defined() || has_plain_sizes(*gradient.unsafeGetTensorImpl());
  });
}

}  // namespace

void GradientGuard::note_new_site() {
  if (!is_on_) return;
  const std::lock_guard lock(mutex_);
  idle_steps_ = 0;
  is_active_ = true;
}

void GradientGuard::begin_round() {
  if (!is_on_) return;
  const std::lock_guard lock(mutex_);
  waiting_.clear();
  idle_steps_ = 0;
  most_idle_steps_ = kMostIdleStepsOfRound;
  round_steps_ = kStepsOfRound;
  is_active_ = true;
}

void GradientGuard::note_saved(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  held_ += bytes;
}

/// A tensor larger than the limit gets a step to itself, once a step has shown how much it holds.
bool GradientGuard::fits_into_step(std::size_t bytes) const {
  const std::size_t most = std::max(kFewBytes, std::max(held_, held_before_) / kPartOfHeld);
  return witnessed_ + bytes <= most || (witnessed_ == 0 && held_before_ != 0);
}

void GradientGuard::postpone(SiteId site) {
  const std::lock_guard lock(mutex_);
  waiting_.insert(site.value);
  idle_steps_ = 0;
  is_active_ = true;
}

std::shared_ptr<Witness> GradientGuard::witness(const Witness::About& about, const at::Tensor& tensor,
                                                const std::function<std::shared_ptr<void>(std::size_t)>& room) {
  if (tensor.is_cuda() && is_captured(tensor.device())) return nullptr;
  const std::lock_guard lock(mutex_);
  waiting_.insert(about.site.value);
  if (!fits_into_step(tensor.nbytes())) return nullptr;
  std::shared_ptr<void> held = room(tensor.nbytes());
  if (!held) return nullptr;
  witnessed_ += tensor.nbytes();
  const at::Tensor saved = tensor.tensor_data();  // a result would hold its own node
  return std::make_shared<Witness>(about, at::sequence_number::peek() - 1, saved, std::move(held), shared_from_this());
}

void GradientGuard::watch(Node& node, Witnesses witnesses) {
  const Arrivals arrivals = listen_below(node);
  listen_to(node,
            [guard = shared_from_this(), &node, witnesses = std::move(witnesses), arrivals](
                const auto& sent, const auto& received) { guard->hear(node, witnesses, arrivals, sent, received); });
}

void GradientGuard::hear(Node& node, Witnesses witnesses, const Arrivals& arrivals, const std::vector<at::Tensor>& sent,
                         const std::vector<at::Tensor>& received) noexcept {
  const bool is_plain = !at::GradMode::is_enabled() && !c10::impl::TorchDispatchModeTLS::any_modes_set() &&
                        are_plain(sent) && are_plain(received);
  try {
    std::erase_if(witnesses, [](const auto& witness) { return !witness->take(); });
    const auto others =
        std::ranges::partition(witnesses, [](const auto& witness) { return witness->restored().has_value(); });
    for (const auto& witness : others) witness->let_go();
    witnesses.erase(others.begin(), others.end());
    if (is_plain && !witnesses.empty()) {
      Seen seen{{}, compare(node, witnesses, arrivals, sent, received)};
      for (const auto& witness : witnesses) seen.sites.push_back(witness->about.site);
      const std::lock_guard lock(mutex_);
      if (!seen.comparisons.empty()) seen_.push_back(std::move(seen));
    }
  } catch (const std::exception&) {  // most likely memory ran out; the sites wait for another step
    forget_exception();
  }
  for (const auto& witness : witnesses) witness->let_go();
}

/// Leaves out comparisons on a device whose stream is being captured: reading them would break the capture.
std::vector<GradientGuard::Seen> GradientGuard::take_seen() {
  const auto waits = [](const Seen& seen) { return is_captured(seen.comparisons[0].difference.device()); };
  const auto waiting = std::ranges::partition(seen_, std::not_fn(waits));
  std::vector<Seen> ready(std::make_move_iterator(seen_.begin()), std::make_move_iterator(waiting.begin()));
  seen_.erase(seen_.begin(), waiting.begin());
  return ready;
}

std::vector<GradientGuard::Verdict> GradientGuard::begin_step() {
  std::vector<Verdict> verdicts;
  if (!is_active()) return verdicts;
  const std::lock_guard lock(mutex_);
  if (held_ > 0) held_before_ = std::exchange(held_, 0);
  witnessed_ = 0;
  const std::vector<Seen> ready = take_seen();
  std::vector<at::Tensor> norms;
  for (const Seen& seen : ready) append_norms(seen.comparisons, norms);
  const std::vector<float> values = on_host(norms);
  std::span<const float> rest = values;
  for (const Seen& seen : ready) {
    const std::size_t count = 3 * seen.comparisons.size();
    const auto noise = noise_of(seen.comparisons, rest.first(count));
    rest = rest.subspan(count);
    if (!noise) continue;
    idle_steps_ = 0;
    for (const SiteId site : seen.sites) {
      waiting_.erase(site.value);
      const auto known = std::ranges::find(verdicts, site, &Verdict::site);  // a site may save several times in a step
      if (known == verdicts.end()) {
        verdicts.push_back({site, *noise});
      } else {
        known->noise = std::max(known->noise, *noise);
      }
    }
  }
  const bool is_waiting = idle_steps_++ < most_idle_steps_ && (!waiting_.empty() || held_before_ == 0);
  is_active_ = is_waiting || round_steps_ > 0;
  round_steps_ = std::max(round_steps_ - 1, 0);
  return verdicts;
}

}  // namespace actzip::torch
