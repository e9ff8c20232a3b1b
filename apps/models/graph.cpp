#include "graph.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "actzip/error.hpp"

namespace actzip::models {

namespace {

using ::torch::autograd::AutogradContext;
using ::torch::autograd::Function;
using ::torch::autograd::variable_list;

/// Turns autocast off, because not every device has 16-bit kernels for sparse products.
struct FullPrecision {
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

at::Tensor matrix(const at::Tensor& row_begins, const at::Tensor& columns, const at::Tensor& values) {
  const std::int64_t nodes = row_begins.numel() - 1;
  return at::_sparse_csr_tensor_unsafe(row_begins, columns, values, {nodes, nodes},
                                       values.options().layout(at::kSparseCsr));
}

at::Tensor with_values(const at::Tensor& graph, const at::Tensor& values) {
  return matrix(graph.crow_indices(), graph.col_indices(), values);
}

at::Tensor degrees(const at::Tensor& graph) { return graph.crow_indices().diff(); }

/// Returns the node of each edge, which is the row of each value.
at::Tensor rows(const at::Tensor& graph) {
  return at::arange(graph.size(0), graph.col_indices().options()).repeat_interleave(degrees(graph), 0, graph._nnz());
}

at::Tensor reduced(const at::Tensor& graph, const at::Tensor& edges, c10::string_view how) {
  return at::segment_reduce(edges, how, std::nullopt, std::nullopt, graph.crow_indices(), 0, /*unsafe=*/true);
}

class NeighbourSum : public Function<NeighbourSum> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& graph, const at::Tensor& input) {
    const FullPrecision full;
    context->saved_data["graph"] = graph;
    return at::mm(graph, input.to(graph.values().scalar_type()));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {at::Tensor(), at::mm(context->saved_data["graph"].toTensor(), gradients[0])};
  }
};

class NeighbourMean : public Function<NeighbourMean> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& graph, const at::Tensor& input) {
    const FullPrecision full;
    context->saved_data["graph"] = graph;
    return at::mm(graph, input.to(graph.values().scalar_type())).div_(divisors(graph));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor graph = context->saved_data["graph"].toTensor();
    return {at::Tensor(), at::mm(graph, gradients[0] / divisors(graph))};
  }

 private:
  static at::Tensor divisors(const at::Tensor& graph) { return degrees(graph).clamp_min(1).unsqueeze(1); }
};

class AttentionWeights : public Function<AttentionWeights> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& graph, const at::Tensor& source,
                            const at::Tensor& target, double slope) {
    const FullPrecision full;
    const at::Tensor row = rows(graph);
    at::Tensor weights = at::leaky_relu(scores(graph, row, source, target), slope);
    weights = (weights - reduced(graph, weights, "max").index_select(0, row)).exp_();
    weights.div_(reduced(graph, weights, "sum").index_select(0, row));
    context->save_for_backward({weights, source, target});
    context->saved_data["graph"] = graph;
    context->saved_data["slope"] = slope;
    return weights;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor graph = context->saved_data["graph"].toTensor();
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& weights = saved[0];
    const at::Tensor row = rows(graph);
    at::Tensor gradient = weights * gradients[0];
    gradient = gradient - weights * reduced(graph, gradient, "sum").index_select(0, row);
    gradient = at::leaky_relu_backward(gradient, scores(graph, row, saved[1], saved[2]),
                                       context->saved_data["slope"].toDouble(), /*self_is_result=*/false);
    // The gradient of the other ends is the sum over the reverse edges.
    return {at::Tensor(), reduced(graph, gradient.index_select(0, graph.values()), "sum"),
            reduced(graph, gradient, "sum"), at::Tensor()};
  }

 private:
  static at::Tensor scores(const at::Tensor& graph, const at::Tensor& row, const at::Tensor& source,
                           const at::Tensor& target) {
    return (source.index_select(0, graph.col_indices()) + target.index_select(0, row)).to(at::kFloat);
  }
};

class WeightedNeighbourSum : public Function<WeightedNeighbourSum> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& graph, const at::Tensor& weights,
                            const at::Tensor& input) {
    const FullPrecision full;
    context->save_for_backward({weights, input});
    context->saved_data["graph"] = graph;
    return products(graph, weights, input.to(weights.scalar_type()));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor graph = context->saved_data["graph"].toTensor();
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& weights = saved[0];
    const at::Tensor input = saved[1].to(weights.scalar_type());
    at::Tensor weights_gradient = at::empty_like(weights);
    for (std::int64_t head = 0; head < weights.size(1); ++head) {
      const at::Tensor pattern = with_values(graph, weights.select(1, head).contiguous());
      const at::Tensor dots = at::sparse_sampled_addmm(pattern, gradients[0].select(1, head).contiguous(),
                                                       input.select(1, head).t().contiguous(), /*beta=*/0);
      weights_gradient.select(1, head).copy_(dots.values());
    }
    return {at::Tensor(), weights_gradient, products(graph, weights.index_select(0, graph.values()), gradients[0])};
  }

 private:
  static at::Tensor products(const at::Tensor& graph, const at::Tensor& weights, const at::Tensor& input) {
    at::Tensor result = at::empty(input.sizes(), input.options());
    for (std::int64_t head = 0; head < weights.size(1); ++head) {
      const at::Tensor weighed = with_values(graph, weights.select(1, head).contiguous());
      result.select(1, head).copy_(at::mm(weighed, input.select(1, head).contiguous()));
    }
    return result;
  }
};

/// Suppresses torch's one-time warning that CSR tensors are new, which is of no use to somebody who trains.
class Silence : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

at::Tensor edge_values(const at::Tensor& row, const at::Tensor& column, const at::Tensor& degree,
                       std::string_view kind) {
  if (kind == "sage") return at::ones(row.sizes(), at::kFloat);
  if (kind == "gat") return (column * degree.size(0) + row).argsort();
  const at::Tensor product = degree.index_select(0, row) * degree.index_select(0, column);
  return product.to(at::kFloat).rsqrt();
}

void check_ends(at::IntArrayRef from, at::IntArrayRef to, std::int64_t nodes) {
  constexpr std::int64_t kMostNodes = 3'037'000'499;  // its square, the number of matrix entries, fits in 63 bits
  if (nodes < 1 || nodes > kMostNodes) {
    throw Error(ErrorCode::invalid_model, fmt::format("graph: {} nodes (allowed: 1 to {})", nodes, kMostNodes));
  }
  if (from.size() != to.size()) {
    throw Error(ErrorCode::invalid_model,
                fmt::format("graph: edges with {} begins and {} ends (allowed: as many)", from.size(), to.size()));
  }
  for (const at::IntArrayRef ends : {from, to}) {
    for (const std::int64_t end : ends) {
      if (end < 0 || end >= nodes) {
        throw Error(ErrorCode::invalid_model,
                    fmt::format("graph: an edge of node {} (allowed: 0 to {})", end, nodes - 1));
      }
    }
  }
}

}  // namespace

at::Tensor normalised_adjacency(at::IntArrayRef from, at::IntArrayRef to, std::int64_t nodes, std::string_view kind) {
  if (kind != "gcn" && kind != "sage" && kind != "gat") {
    throw Error(ErrorCode::invalid_model, fmt::format("graph: matrix for '{}' (allowed: gcn, sage, gat)", kind));
  }
  check_ends(from, to, nodes);
  const at::Tensor begin = at::tensor(from, at::kLong), end = at::tensor(to, at::kLong);
  at::Tensor places = at::cat({begin * nodes + end, end * nodes + begin});
  if (kind == "sage") {
    places = places.masked_select(begin.ne(end).repeat({2}));
  } else {
    places = at::cat({places, at::arange(nodes, at::kLong) * (nodes + 1)});
  }
  places = std::get<0>(at::_unique(places, /*sorted=*/true));  // sorted by rows, as CSR requires
  const at::Tensor row = places.div(nodes, "floor"), column = places.remainder(nodes);
  const at::Tensor degree = at::bincount(row, {}, nodes);
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  return matrix(at::cat({at::zeros(1, at::kLong), degree.cumsum(0)}), column, edge_values(row, column, degree, kind));
}

at::Tensor neighbour_sum(const at::Tensor& graph, const at::Tensor& input) { return NeighbourSum::apply(graph, input); }

at::Tensor neighbour_mean(const at::Tensor& graph, const at::Tensor& input) {
  return NeighbourMean::apply(graph, input);
}

at::Tensor attention_weights(const at::Tensor& graph, const at::Tensor& source, const at::Tensor& target,
                             double slope) {
  return AttentionWeights::apply(graph, source, target, slope);
}

at::Tensor weighted_neighbour_sum(const at::Tensor& graph, const at::Tensor& weights, const at::Tensor& input) {
  return WeightedNeighbourSum::apply(graph, weights, input);
}

}  // namespace actzip::models
