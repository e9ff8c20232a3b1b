// torch's backward operators on encoded tensors.
#pragma once

namespace torch {
class Library;
namespace autograd {
struct Node;
}
}  // namespace torch

namespace actzip::torch {

/// Whether backward of `node` hands what it restores to one of the operators below, and looks at nothing but sizes
/// itself.
bool calls_known_operator(const ::torch::autograd::Node& node);

/// Registers the operators.
void add_backward_kernels(::torch::Library& library);

}  // namespace actzip::torch
