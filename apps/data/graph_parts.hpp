// What all graphs share, however they were written.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph.hpp"

namespace actzip::data {

using Edges = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Fills from and to of a graph: both directions, each once, no loops, in order. Throws DataError, naming `place`.
void set_edges(Graph& graph, const Edges& edges, const std::string& place);

/// Counts the classes; throws DataError for a label that there cannot be, if a split has no nodes, or a node of one no
/// label.
void check_graph(Graph& graph, const GraphLimits& limits, const std::string& place);

/// The folder of ogbn-arxiv, with raw and split in it.
Graph load_csv_graph(const std::string& folder, const GraphLimits& limits);

}  // namespace actzip::data
