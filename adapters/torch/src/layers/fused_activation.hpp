// Activations on CUDA that encode their input while they are computed.
#pragma once

#include "actzip/activation.hpp"
#include "layers/layer_node.hpp"

namespace actzip::torch::layers {

/// The activation of `input`, which is encoded into `room` in the same pass; undefined, and nothing is written, if no
/// bytes are wanted or kernels do not take it.
at::Tensor activate_into(const Reservation& room, Activation activation, const at::Tensor& input);

}  // namespace actzip::torch::layers
