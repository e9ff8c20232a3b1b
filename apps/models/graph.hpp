// Sparse matrices of graphs, and the products with them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace actzip::models {

/// What a graph model is given as `extra`: a square CSR matrix of the edges, each taken in both directions and once.
/// "gcn": with loops, weighed by 1 / sqrt(degrees of both ends); "sage": without loops, weighed 1, the layer takes
/// means; "gat": with loops; values are integers, the place of each edge's reverse, so that transposing costs no sort.
/// Its pattern is symmetric whatever the kind, and the products below rely on that. Throws actzip::Error for another
/// kind and for ends outside 0 to nodes - 1.
at::Tensor normalised_adjacency(at::IntArrayRef from, at::IntArrayRef to, std::int64_t nodes, std::string_view kind);

/// `graph` x `input` for a symmetric matrix: its gradient is the same product, and nothing is saved but the matrix.
at::Tensor neighbour_sum(const at::Tensor& graph, const at::Tensor& input);

/// The mean over each node's neighbours, 0 without any, for a matrix of ones. It, too, saves nothing but the matrix.
at::Tensor neighbour_mean(const at::Tensor& graph, const at::Tensor& input);

/// A softmax over each node's edges of leaky_relu(source[of the other end] + target[of the node]), with one column a
/// head: [edges, heads]. It saves its result, and `source` and `target`, which have a row a node.
at::Tensor attention_weights(const at::Tensor& graph, const at::Tensor& source, const at::Tensor& target, double slope);

/// The sum over each node's edges of weight[edge, head] x input[other end, head, :]. It saves both; nothing in it has
/// the size edges x width.
at::Tensor weighted_neighbour_sum(const at::Tensor& graph, const at::Tensor& weights, const at::Tensor& input);

}  // namespace actzip::models
