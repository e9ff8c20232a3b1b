// torch's backward operators on encoded tensors.
#pragma once

namespace torch {
class Library;
namespace autograd {
struct Node;
}
}  // namespace torch

namespace actzip::torch {

/// Whether the backward of `node` passes what it restores to one of the operators below, and otherwise uses its sizes
/// alone.
bool calls_known_operator(const ::torch::autograd::Node& node);

/// Registers the operators.
void add_backward_kernels(::torch::Library& library);

}  // namespace actzip::torch
