#include "optimizer.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace actzip::train {

namespace {

// The defaults of torch's GradScaler.
constexpr double kFirstScale = 65536.0;
constexpr double kGrowth = 2.0;
constexpr double kBackoff = 0.5;
constexpr std::int64_t kGrowthInterval = 2000;
constexpr double kEpsilon = 1e-8;

}  // namespace

Optimizer::Optimizer(const Options& options, const NamedTensors& parameters) : options_(options), groups_(2) {
  groups_[0].weight_decay = options.weight_decay;
  const bool has_squares = options.optimizer != "sgd";
  const bool has_momenta = has_squares || options.momentum > 0;
  for (const auto& [name, parameter] : parameters) {
    Group& group = groups_[options.decay_matrices_only && parameter.dim() < 2 ? 1 : 0];
    group.names.push_back(name);
    group.parameters.push_back(parameter);
    if (has_momenta) group.momenta.push_back(at::zeros_like(parameter));
    if (!has_squares) continue;
    group.squares.push_back(at::zeros_like(parameter));
    group.steps.push_back(at::zeros({}, parameter.options().dtype(at::kFloat)));
  }
  if (options.amp != "fp16") return;
  const auto device = at::TensorOptions().device(parameters.front().second.device());
  scale_ = at::full({}, kFirstScale, device.dtype(at::kFloat));
  growth_ = at::zeros({}, device.dtype(at::kInt));
  not_finite_ = at::zeros({}, device.dtype(at::kFloat));
}

std::vector<at::Tensor> Optimizer::gradients() const {
  std::vector<at::Tensor> all;
  for (const Group& group : groups_) {
    for (const at::Tensor& parameter : group.parameters) {
      if (parameter.grad().defined()) all.push_back(parameter.grad());
    }
  }
  return all;
}

void Optimizer::clip(const std::vector<at::Tensor>& gradients) const {
  constexpr double kAboveZero = 1e-6;
  const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients)));
  at::_foreach_mul_(gradients, (options_.clip / (norm + kAboveZero)).clamp_max(1.0));
}

void Optimizer::step_group(Group& group, double rate) {
  std::vector<at::Tensor> parameters, gradients, momenta, squares, steps;
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    if (!group.parameters[i].grad().defined()) continue;
    parameters.push_back(group.parameters[i]);
    gradients.push_back(group.parameters[i].grad());
    if (!group.momenta.empty()) momenta.push_back(group.momenta[i]);
    if (group.squares.empty()) continue;
    squares.push_back(group.squares[i]);
    steps.push_back(group.steps[i]);
  }
  if (parameters.empty()) return;
  const std::optional<at::Tensor> left_out = not_finite_.defined() ? std::optional(not_finite_) : std::nullopt;
  if (options_.optimizer == "sgd") {
    at::_fused_sgd_(parameters, gradients, momenta, group.weight_decay, options_.momentum, rate, /*dampening=*/0.0,
                    options_.nesterov, /*maximize=*/false, /*is_first_step=*/false, {}, left_out);
    return;
  }
  at::_foreach_add_(steps, 1.0);
  if (left_out) at::_foreach_sub_(steps, std::vector<at::Tensor>(steps.size(), not_finite_));
  const auto update = [&](auto kernel) {
    kernel(parameters, gradients, momenta, squares, at::TensorList(), steps, rate, options_.betas[0], options_.betas[1],
           group.weight_decay, kEpsilon, /*amsgrad=*/false, /*maximize=*/false, std::nullopt, left_out);
  };
  using Kernel = void (*)(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                          at::TensorList, double, double, double, double, double, bool, bool,
                          const std::optional<at::Tensor>&, const std::optional<at::Tensor>&);
  update(options_.optimizer == "adam" ? static_cast<Kernel>(at::_fused_adam_) : static_cast<Kernel>(at::_fused_adamw_));
}

void Optimizer::step(double rate) {
  const c10::NoGradGuard no_graph;
  const std::vector<at::Tensor> all = gradients();
  if (scale_.defined()) {
    not_finite_.zero_();
    at::_amp_foreach_non_finite_check_and_unscale_(all, not_finite_, scale_.reciprocal());
  }
  if (options_.clip > 0) clip(all);
  for (Group& group : groups_) step_group(group, rate);
  if (scale_.defined()) {
    at::_amp_update_scale_(scale_, growth_, not_finite_, kGrowth, kBackoff, kGrowthInterval);
  }
  for (const Group& group : groups_) {
    for (const at::Tensor& parameter : group.parameters) parameter.mutable_grad().reset();
  }
}

NamedTensors Optimizer::state() const {
  NamedTensors all;
  const auto add = [&](const char* what, const Group& group, const std::vector<at::Tensor>& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) all.emplace_back(what + group.names[i], tensors[i]);
  };
  for (const Group& group : groups_) {
    add("momentum.", group, group.momenta);
    add("square.", group, group.squares);
    add("step.", group, group.steps);
  }
  if (scale_.defined()) all.insert(all.end(), {{"loss_scale", scale_}, {"loss_scale_growth", growth_}});
  return all;
}

}  // namespace actzip::train
