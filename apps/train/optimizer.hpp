// Updates all parameters by SGD, Adam or AdamW with torch's fused kernels, with loss scaling for fp16.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "options.hpp"

namespace actzip::train {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// An optimizer. No step waits for the device.
class Optimizer {
 public:
  /// Optimises these named parameters.
  Optimizer(const Options& options, const NamedTensors& parameters);

  /// The factor by which the caller must multiply the loss before backward; undefined if the loss is not scaled.
  [[nodiscard]] const at::Tensor& loss_scale() const { return scale_; }

  /// Clips the gradients, makes a step with this learning rate, and releases the gradients. With a scaled loss, skips a
  /// step whose gradients are not finite and halves the scale.
  void step(double rate);

  /// Returns by name everything that a step depends on besides the parameters. The tensors share the optimizer's
  /// memory.
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
  at::Tensor not_finite_;  ///< 1 if this step's gradients are not finite; undefined without a scale
};

}  // namespace actzip::train
