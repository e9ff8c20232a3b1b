// Steps shared by the loaders of all graph formats.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph.hpp"

namespace actzip::data {

using Edges = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Fills `from` and `to` of a graph: both directions of each edge, once each, no loops, sorted. Throws DataError for
/// nodes that do not exist, naming `place`.
void set_edges(Graph& graph, const Edges& edges, const std::string& place);

/// Sets the number of classes. Throws DataError, naming `place`, for a label out of range, a split without nodes, or a
/// node in a split without a label.
void check_graph(Graph& graph, const GraphLimits& limits, const std::string& place);

/// Loads a folder like that of ogbn-arxiv, which contains raw and split. Throws DataError.
Graph load_csv_graph(const std::string& folder, const GraphLimits& limits);

}  // namespace actzip::data
