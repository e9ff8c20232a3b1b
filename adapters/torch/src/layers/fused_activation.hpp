// Activation functions on CUDA that encode their input in the same pass.
#pragma once

#include "actzip/activation.hpp"
#include "layers/layer_node.hpp"

namespace actzip::torch::layers {

/// Returns the activation of `input`, and encodes `input` into `room` in the same pass. Undefined, and nothing is
/// written, if no bytes are wanted or no kernel supports the call.
at::Tensor activate_into(const Reservation& room, Activation activation, const at::Tensor& input);

}  // namespace actzip::torch::layers
