// Runs a node of the autograd graph again in backward, to see what it makes of other numbers.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <functional>
#include <optional>
#include <vector>

namespace actzip::torch {

/// Whether a node may run again. torch's own nodes and ours depend only on the gradient and what they saved; others may
/// do anything.
bool can_run_again(const ::torch::autograd::Node& node);

/// Returns what the node makes of `gradients`, in the shapes and types of what it `sent`. Nothing if it fails: because
/// memory ran out, or because a saved tensor can be restored only once. Call it while the node still has its saved
/// variables.
std::optional<std::vector<at::Tensor>> run_again(::torch::autograd::Node& node, std::vector<at::Tensor> gradients,
                                                 const std::vector<at::Tensor>& sent);

/// A callback that gets what a node sent and what it received.
using Hear = std::function<void(const std::vector<at::Tensor>& sent, const std::vector<at::Tensor>& received)>;

/// Whether a transform of torch.func, or a backward with is_grads_batched=True, runs on this thread. A tensor there may
/// stand for a batch of tensors, so its norm cannot be read.
bool is_in_transform();

/// Calls `hear` each time the node has run, except inside transforms. Refuses compiled autograd.
void listen_to(::torch::autograd::Node& node, Hear hear);

/// Returns the Euclidean norm in f32, on the tensor's device.
at::Tensor norm_of(const at::Tensor& tensor);

/// The same over some dimensions of a tensor of real numbers; without any given, over all.
at::Tensor norms_of(const at::Tensor& tensor, at::OptionalIntArrayRef dimensions);

/// Whether the edge leads to a leaf, usually a parameter.
bool is_parameter(const ::torch::autograd::Edge& edge);

/// Whether `node` is of a kind that may stand between a parameter and the operator that uses it.
bool is_cast_or_transposition(const ::torch::autograd::Node& node);

/// Whether the gradient that is sent along the edge is that of a parameter, up to casts and transpositions.
bool leads_to_parameter(const ::torch::autograd::Edge& edge);

}  // namespace actzip::torch
