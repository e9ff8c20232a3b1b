// Graphs for node classification.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "error.hpp"

namespace actzip::data {

enum class NodeSplit : std::uint8_t { train, validation, test, none };

/// A graph. Holds every edge in both directions, once each, and no loops, ordered by `from`, then by `to`.
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

/// Limits on what a file may request. Features are a dense matrix, so one wrong digit could exhaust the memory.
struct GraphLimits {
  std::int64_t features = std::int64_t{1} << 20;
  std::int64_t classes = std::int64_t{1} << 20;
  std::int64_t elems = std::int64_t{1} << 32;  ///< nodes times features
};

/// Loads the graph that `where` names:
///   rings[:NODES]   a generated graph of rings, whose nodes show their class only together (1,000 nodes)
///   a folder        with one *.nodes and one *.edges file, or with raw/edge.csv[.gz] etc., as ogbn-arxiv unpacks
///   STEM            the files STEM.nodes and STEM.edges
/// Throws DataError with a message that lists these forms or says what is wrong with a file.
Graph load_graph(const std::string& where, const GraphLimits& limits = {});

/// Divides each node's features by their sum if it is above 1: each word's share instead of its presence.
void share_features(Graph& graph);

}  // namespace actzip::data
