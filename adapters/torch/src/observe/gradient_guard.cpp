#include "observe/gradient_guard.hpp"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/backward.hpp"
#include "base/memory.hpp"

namespace actzip::torch {

namespace {

using ::torch::autograd::FunctionPostHook;
using ::torch::autograd::Node;
using ::torch::autograd::variable_list;

/// Witnesses of one step: this much, or this part of what a plain step holds.
constexpr std::size_t kFewBytes = std::size_t{16} << 20U;
constexpr std::size_t kPartOfHeld = 50;
/// After so many steps nobody waits for backward any more.
constexpr int kMostIdleSteps = 100;

class GuardHook final : public FunctionPostHook {
 public:
  GuardHook(std::shared_ptr<GradientGuard> guard, Node& node, Witnesses witnesses)
      : guard_(std::move(guard)), node_(&node), witnesses_(std::move(witnesses)) {}
  variable_list operator()(const variable_list& outputs, const variable_list& inputs) override {
    guard_->hear(*node_, std::exchange(witnesses_, {}), outputs, inputs);
    return outputs;
  }

 private:
  std::shared_ptr<GradientGuard> guard_;
  Node* node_;  ///< owns this hook
  Witnesses witnesses_;
};

bool enters_linearly(Use use) {
  return use == Use::linear_input || use == Use::linear_weight || use == Use::convolution_input ||
         use == Use::convolution_weight || use == Use::vector_operand;
}

}  // namespace

void GradientGuard::note_new_site() {
  if (!is_on_) return;
  const std::lock_guard lock(mutex_);
  idle_steps_ = 0;
  is_active_ = true;
}

void GradientGuard::note_saved(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  held_ += bytes;
}

/// A tensor that is too large for any step has one to itself, as soon as it is known how much a step holds.
bool GradientGuard::fits_into_step(std::size_t bytes) const {
  const std::size_t most = std::max(kFewBytes, std::max(held_, held_before_) / kPartOfHeld);
  return witnessed_ + bytes <= most || (witnessed_ == 0 && held_before_ != 0);
}

std::shared_ptr<Witness> GradientGuard::witness(SiteId site, Use use, const at::Tensor& tensor) {
  if (tensor.is_cuda() && is_captured(tensor.device())) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = sites_.try_emplace(site.value, State::waiting);
  if (is_new) ++waiting_;
  if (known->second == State::heard || !fits_into_step(tensor.nbytes())) return nullptr;
  witnessed_ += tensor.nbytes();
  return std::make_shared<Witness>(
      Witness{.site = site,
              .is_linear = enters_linearly(use),
              .node = at::sequence_number::peek() - 1,
              .saved = tensor.grad_fn() ? tensor.tensor_data() : tensor,  // a result would hold its own node
              .restored = {},
              .guard = shared_from_this()});
}

void GradientGuard::watch(Node& node, Witnesses witnesses) {
  node.add_post_hook(std::make_unique<GuardHook>(shared_from_this(), node, std::move(witnesses)));
}

void GradientGuard::hear(Node& node, Witnesses witnesses, const std::vector<at::Tensor>& sent,
                         const std::vector<at::Tensor>& received) noexcept {
  const bool is_plain = !at::GradMode::is_enabled() && !c10::impl::TorchDispatchModeTLS::any_modes_set();
  try {
    std::erase_if(witnesses, [](const auto& witness) { return !witness->restored; });
    if (is_plain && !witnesses.empty()) {
      Seen seen{{}, compare(node, witnesses, sent, received)};
      for (const auto& witness : witnesses) seen.sites.push_back(witness->site);
      const std::lock_guard lock(mutex_);
      if (!seen.comparisons.empty()) seen_.push_back(std::move(seen));
    }
  } catch (const std::exception&) {  // memory ran out, above all
    forget_exception();
  }
  for (const auto& witness : witnesses) {
    witness->saved.reset();
    witness->restored.reset();
  }
}

std::vector<SiteId> GradientGuard::begin_step() {
  std::vector<SiteId> spoilt;
  if (!is_active()) return spoilt;
  const std::lock_guard lock(mutex_);
  held_before_ = std::exchange(held_, 0);
  witnessed_ = 0;
  for (Seen& seen : std::exchange(seen_, {})) {
    if (is_captured(seen.comparisons[0].difference.device())) {
      seen_.push_back(std::move(seen));
      continue;
    }
    const auto verdict = is_spoilt(seen.comparisons);
    if (!verdict) continue;
    idle_steps_ = 0;
    for (const SiteId site : seen.sites) {
      if (std::exchange(sites_[site.value], State::heard) == State::waiting) --waiting_;
      if (*verdict) spoilt.push_back(site);
    }
  }
  is_active_ = idle_steps_++ < kMostIdleSteps && (waiting_ > 0 || held_before_ == 0);
  return spoilt;
}

}  // namespace actzip::torch
