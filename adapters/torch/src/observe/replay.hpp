// A node of the graph that runs once more in backward, so that somebody learns what it makes of other numbers.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <functional>
#include <optional>
#include <vector>

namespace actzip::torch {

/// torch's own nodes, and ours, are functions of the gradient and what they saved. Others may do anything.
bool can_run_again(const ::torch::autograd::Node& node);

/// What the node makes of `gradients`, in the shapes and types of what it `sent`. None if it fails: for want of memory,
/// or because the node, or somebody's hook, gives what it saved only once. While the node's variables are there.
std::optional<std::vector<at::Tensor>> run_again(::torch::autograd::Node& node, std::vector<at::Tensor> gradients,
                                                 const std::vector<at::Tensor>& sent);

/// Called with what a node sent and what it received.
using Hear = std::function<void(const std::vector<at::Tensor>& sent, const std::vector<at::Tensor>& received)>;

/// Whether a transform of torch.func runs on this thread, or a backward with is_grads_batched=True. A tensor there may
/// stand for a batch of tensors, and its norm cannot be read.
bool is_in_transform();

/// Calls `hear` each time the node has run outside of transforms. Refuses compiled autograd.
void listen_to(::torch::autograd::Node& node, Hear hear);

/// Its length, in f32, on its device.
at::Tensor norm_of(const at::Tensor& tensor);

/// Whether it leads to a leaf: a parameter, mostly.
bool is_parameter(const ::torch::autograd::Edge& edge);

/// Nodes between a parameter and the operator that uses it.
bool is_cast_or_transposition(const ::torch::autograd::Node& node);

/// Whether what is sent there is the gradient of a parameter, up to a cast or a transposition.
bool leads_to_parameter(const ::torch::autograd::Edge& edge);

}  // namespace actzip::torch
