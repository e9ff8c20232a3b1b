// Activations on CUDA that encode their input while they are computed.
#pragma once

#include "actzip/activation.hpp"
#include "layers/layer_node.hpp"

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

}  // namespace actzip::torch::layers
