// Activations on CUDA that encode their input while they are computed, and decode it while their gradient is made.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "actzip/activation.hpp"
#include "layer_node.hpp"

namespace actzip::torch::layers {

/// Computes the activation of a tensor in the same pass that encodes it.
class ActivatingEncoder final : public Encoder {
 public:
  ActivatingEncoder(Activation activation, const at::Tensor& input) : activation_(activation), input_(input) {}

  bool encode(const CodecSpec& spec, ByteSpan dst, Seed seed, const Stream& stream) override;

  at::Tensor result;  ///< undefined if nobody asked, or kernels do not take it

 private:
  Activation activation_;
  const at::Tensor& input_;
};

/// The gradient of an activation from what was kept of its input, or nothing if kernels do not take that.
std::optional<at::Tensor> fused_gradient(Activation activation, const Packed& saved, const at::Tensor& gradient);

/// A saved input, and a gradient that is a function of both where it cannot be made from the encoding.
template <class Function>
class FusedActivationNode final : public LayerNode {
 public:
  FusedActivationNode(const char* name, Activation activation, Function function)
      : LayerNode(name), activation_(activation), function_(std::move(function)) {}

  Packed saved;

 private:
  variable_list backward(const at::Tensor& gradient) override {
    auto result = is_trying() ? std::nullopt : fused_gradient(activation_, saved, gradient);
    return {result ? std::move(*result) : function_(gradient, saved.unpack_as_tried())};
  }
  void release() override { saved = {}; }

  Activation activation_;
  Function function_;
};

}  // namespace actzip::torch::layers
