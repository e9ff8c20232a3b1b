#include "session/sample_table.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "actzip/error.hpp"

namespace actzip::torch {

namespace {

/// How many tensors are watched. Gradients of neighbouring layers are similar, so more would add little.
constexpr std::size_t kMostWatched = 4;

[[noreturn]] void refuse_samples(const std::string& text) { throw Error(ErrorCode::invalid_spec, "samples: " + text); }

void check_indices(const at::Tensor& indices, std::int64_t num_samples) {
  if (indices.dim() != 1 || !c10::isIntegralType(indices.scalar_type(), /*includeBool=*/false)) {
    refuse_samples(std::to_string(indices.dim()) + " dimensions of " + c10::toString(indices.scalar_type()) +
                   " (allowed: one of integers)");
  }
  if (!indices.device().is_cpu()) {
    refuse_samples("indices on " + indices.device().str() +
                   " (allowed: on the CPU, where looking at them waits for nothing)");
  }
  if (num_samples == 0 || indices.numel() == 0) return;
  for (const at::Tensor& end : {indices.min(), indices.max()}) {
    const auto index = end.item<std::int64_t>();
    if (index >= 0 && index < num_samples) continue;
    refuse_samples("index " + std::to_string(index) + " (allowed: 0 to " + std::to_string(num_samples - 1) +
                   ", by num_samples)");
  }
}

/// The squared norm of each of `count` samples, each of which may have several rows.
at::Tensor squares_by_sample(const at::Tensor& gradient, std::int64_t count) {
  const at::Tensor rows = gradient.size(0) == count ? gradient : gradient.unflatten(0, {count, -1});
  std::vector<std::int64_t> dimensions(static_cast<std::size_t>(rows.dim() - 1));
  std::iota(dimensions.begin(), dimensions.end(), 1);
  return at::linalg_vector_norm(rows, 2, dimensions, /*keepdim=*/false, at::kFloat).square_();
}

}  // namespace

class SampleTable::Hook final : public ::torch::autograd::FunctionPreHook {
 public:
  Hook(std::shared_ptr<SampleTable> table, at::Tensor indices, std::uint32_t output, double share)
      : table_(std::move(table)), indices_(std::move(indices)), output_(output), share_(share) {}
  ::torch::autograd::variable_list operator()(const ::torch::autograd::variable_list& gradients) override {
    if (output_ < gradients.size() && gradients[output_].defined()) {
      table_->update(indices_, gradients[output_], share_);
    }
    return gradients;
  }

 private:
  std::shared_ptr<SampleTable> table_;
  at::Tensor indices_;
  std::uint32_t output_;
  double share_;
};

void SampleTable::set_next(const at::Tensor& indices, bool learns) {
  check_indices(indices, num_samples_);
  const std::lock_guard lock(mutex_);
  next_learns_ = learns;
  next_ = indices.to(at::kLong, /*non_blocking=*/false, /*copy=*/true);
  if (table_.defined()) upload();
}

/// Copies `next_` to the device. In place if no pending backward reads the old indices, because a captured step refers
/// to them by address.
void SampleTable::upload() {
  const bool is_free = indices_.defined() && indices_.use_count() == 1 && indices_.numel() == next_.numel();
  if (!is_free) indices_ = at::empty(next_.sizes(), table_.options().dtype(at::kLong));
  const bool is_far = !table_.device().is_cpu();
  indices_.copy_(is_far ? next_.pin_memory() : next_, /*non_blocking=*/is_far);
}

void SampleTable::begin_step() {
  const std::lock_guard lock(mutex_);
  count_ = next_.defined() ? next_.numel() : 0;
  learns_ = next_learns_;
  factors_.reset();
  if (num_samples_ == 0 || table_.defined()) next_.reset();  // otherwise they wait for the table
}

BatchSamples SampleTable::batch(c10::Device device) {
  const std::lock_guard lock(mutex_);
  if (count_ == 0 || num_samples_ == 0) return {.count = count_};
  const at::NoGradGuard no_graph;
  if (!table_.defined()) {
    table_ = at::full({num_samples_}, -1.0, at::TensorOptions().dtype(at::kFloat).device(device));
    upload();
    next_.reset();
  }
  if (table_.device() != device) return {.count = count_};
  // A sample that was not seen yet counts like the mean of its batch: 1.
  if (!factors_.defined()) factors_ = table_.index_select(0, indices_).abs_();
  return {.count = count_, .factors = factors_.const_data_ptr<float>()};
}

void SampleTable::watch(const at::Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  if (!learns_ || !factors_.defined() || tensor.dim() == 0 || tensor.size(0) % count_ != 0 || !tensor.grad_fn()) return;
  const auto is_same = [&](const Watched& other) { return other.node == tensor.grad_fn(); };
  if (std::ranges::any_of(watched_, is_same)) return;
  watched_.push_back({tensor.grad_fn(), static_cast<std::uint32_t>(tensor.output_nr())});
  if (watched_.size() > kMostWatched) watched_.pop_front();
}

void SampleTable::end_step() {
  const std::lock_guard lock(mutex_);
  const auto watched = std::exchange(watched_, {});
  if (watched.empty()) return;
  // Together, the updates of one step weigh as much as all earlier steps: half.
  const double share = 1.0 - std::pow(0.5, 1.0 / static_cast<double>(watched.size()));
  for (const Watched& one : watched) {
    one.node->add_pre_hook(std::make_unique<Hook>(shared_from_this(), indices_, one.output, share));
  }
}

/// A running mean. Ignores gradients that overflowed, as a loss scaler causes now and then.
void SampleTable::update(const at::Tensor& indices, const at::Tensor& gradient, double share) {
  const at::NoGradGuard no_graph;
  const std::lock_guard lock(mutex_);
  if (indices.numel() == 0 || gradient.dim() == 0 || gradient.size(0) % indices.numel() != 0) return;
  const at::Tensor squares = squares_by_sample(gradient, indices.numel());
  const at::Tensor relative = squares / squares.mean();
  const at::Tensor old = table_.index_select(0, indices);
  const at::Tensor mean = at::where(old < 0, relative, at::lerp(old, relative, share));
  table_.index_copy_(0, indices, at::where(at::isfinite(relative), mean, old));
}

at::Tensor SampleTable::factors() const {
  const std::lock_guard lock(mutex_);
  return table_.defined() ? table_.clone() : table_;
}

std::optional<SampleStatistics> SampleTable::report() const {
  if (num_samples_ == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return SampleStatistics{.samples = num_samples_, .bytes = table_.defined() ? table_.nbytes() : 0};
}

}  // namespace actzip::torch
