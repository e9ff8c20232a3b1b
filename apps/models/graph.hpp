// Sparse adjacency matrices of graphs, and products with them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace actzip::models {

/// Makes the `extra` input of a graph model: a square CSR matrix of the edges, in both directions and once each.
/// "gcn": with loops; values are 1 / sqrt(product of both ends' degrees). "sage": without loops; values are 1, because
/// the layer takes means. "gat": with loops; values are integers, the position of each edge's reverse, so that
/// transposing needs no sort. The pattern is symmetric for every kind, and the products below rely on that. Throws
/// actzip::Error for another kind and for ends outside 0 to nodes - 1.
at::Tensor normalised_adjacency(at::IntArrayRef from, at::IntArrayRef to, std::int64_t nodes, std::string_view kind);

/// Returns `graph` x `input` for a symmetric matrix. Its gradient is a product with the same matrix, so backward needs
/// only the matrix.
at::Tensor neighbour_sum(const at::Tensor& graph, const at::Tensor& input);

/// Returns the mean over each node's neighbours, 0 if it has none, for a matrix of ones. Saves only the matrix, too.
at::Tensor neighbour_mean(const at::Tensor& graph, const at::Tensor& input);

/// Returns the softmax over each node's edges of leaky_relu(source[other end] + target[node]) as [edges, heads]. Saves
/// its result, `source` and `target`; the latter two have one row per node.
at::Tensor attention_weights(const at::Tensor& graph, const at::Tensor& source, const at::Tensor& target, double slope);

/// Returns the sum over each node's edges of weights[edge, head] x input[other end, head, :]. Saves `weights` and
/// `input`. Nothing it allocates has the size edges x width.
at::Tensor weighted_neighbour_sum(const at::Tensor& graph, const at::Tensor& weights, const at::Tensor& input);

}  // namespace actzip::models
