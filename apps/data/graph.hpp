// Graphs whose nodes are to be classified.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "error.hpp"

namespace actzip::data {

enum class NodeSplit : std::uint8_t { train, validation, test, none };

/// Every edge in both directions and once, none from a node to itself, ordered by `from`, then by `to`.
struct Graph {
  static constexpr std::int64_t kNoLabel = -1;

  std::int64_t nodes = 0;
  std::int64_t features = 0;
  std::int64_t classes = 0;
  std::vector<float> x;              ///< [nodes, features]
  std::vector<std::int64_t> labels;  ///< [nodes], kNoLabel for none
  std::vector<NodeSplit> split;      ///< [nodes]
  std::vector<std::int64_t> from;
  std::vector<std::int64_t> to;
};

/// What a file may ask for. Features are held as a dense matrix, so one wrong digit could take all memory.
struct GraphLimits {
  std::int64_t features = std::int64_t{1} << 20;
  std::int64_t classes = std::int64_t{1} << 20;
  std::int64_t elems = std::int64_t{1} << 32;  ///< nodes times features
};

/// Loads what `where` is:
///   rings[:NODES]   generated: rings of nodes that know their class only together (1,000 nodes)
///   a folder        with one *.nodes and one *.edges, or with raw/edge.csv[.gz] and so on, as ogbn-arxiv is unpacked
///   STEM            of STEM.nodes and STEM.edges
/// Throws DataError that says which of these were looked for, or what in a file is wrong.
Graph load_graph(const std::string& where, const GraphLimits& limits = {});

/// Divides the features of each node by their sum, if that is above 1: a share of each word instead of its presence.
void share_features(Graph& graph);

}  // namespace actzip::data
