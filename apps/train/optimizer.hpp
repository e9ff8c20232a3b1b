// One step of SGD, Adam or AdamW for all parameters, by torch's fused kernels; a scaled loss for fp16.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "options.hpp"

namespace actzip::train {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Nothing in a step waits for a device.
class Optimizer {
 public:
  /// Of these parameters, by name.
  Optimizer(const Options& options, const NamedTensors& parameters);

  /// What the loss is multiplied with before backward; undefined if it is not.
  [[nodiscard]] const at::Tensor& loss_scale() const { return scale_; }

  /// Clips, steps with this learning rate, and lets the gradients go. With a scaled loss, a step whose gradients are
  /// not finite is left out, and the scale is halved.
  void step(double rate);

  /// All that a step depends on beside the parameters, by name; it shares memory with the optimizer.
  [[nodiscard]] NamedTensors state() const;

 private:
  struct Group {
    double weight_decay = 0;
    std::vector<std::string> names;
    std::vector<at::Tensor> parameters, momenta, squares, steps;
  };

  [[nodiscard]] std::vector<at::Tensor> gradients() const;
  void clip(const std::vector<at::Tensor>& gradients) const;
  void step_group(Group& group, double rate);

  Options options_;
  std::vector<Group> groups_;
  at::Tensor scale_;
  at::Tensor growth_;      ///< steps since the scale changed
  at::Tensor not_finite_;  ///< of this step's gradients; undefined without a scale
};

}  // namespace actzip::train
