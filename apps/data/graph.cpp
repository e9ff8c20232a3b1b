#include "graph.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>

#include "file.hpp"
#include "generated.hpp"
#include "graph_parts.hpp"
#include "numbers.hpp"
#include "random.hpp"

namespace actzip::data {
namespace {

namespace fs = std::filesystem;

NodeSplit parse_split(std::string_view text, const std::string& place) {
  constexpr std::array<std::string_view, 4> kNames = {"train", "val", "test", "-"};
  const auto* const found = std::ranges::find(kNames, text);
  if (found == kNames.end()) {
    throw DataError(fmt::format("{}: split '{}' (allowed: {})", place, text, fmt::join(kNames, ", ")));
  }
  return static_cast<NodeSplit>(found - kNames.begin());
}

/// Fills the features as a matrix of zeros and ones.
void fill_features(Graph& graph, const std::vector<std::vector<std::int64_t>>& words) {
  const auto features = static_cast<std::size_t>(graph.features);
  graph.x.assign(words.size() * features, 0.0F);
  for (std::size_t node = 0; node < words.size(); ++node) {
    for (const std::int64_t word : words[node]) graph.x[node * features + static_cast<std::size_t>(word)] = 1.0F;
  }
}

/// Reads one line per node: label, tab, split, tab, indices of the features that are 1.
void read_nodes(const fs::path& path, const GraphLimits& limits, Graph& graph) {
  const std::string text = read_text(path);
  std::vector<std::vector<std::int64_t>> words;
  std::int64_t last_word = 0;
  std::size_t number = 0;
  for (const std::string_view line : lines_of(path, text)) {
    const std::string place = fmt::format("{}, line {}", path.string(), ++number);
    const std::size_t first = line.find('\t');
    const std::size_t second = first == std::string_view::npos ? first : line.find('\t', first + 1);
    if (second == std::string_view::npos) {
      throw DataError(fmt::format("{}: '{}' (expected: label, tab, train, val, test or -, tab, indices of features)",
                                  place, line.substr(0, 60)));
    }
    graph.labels.push_back(parse_row<std::int64_t>(line.substr(0, first), place, 1).front());
    graph.split.push_back(parse_split(line.substr(first + 1, second - first - 1), place));
    words.push_back(parse_row<std::int64_t>(line.substr(second + 1), place));
    for (const std::int64_t word : words.back()) {
      if (word < 0 || word >= limits.features) {
        throw DataError(fmt::format("{}: feature {} (allowed: 0 to {})", place, word, limits.features - 1));
      }
      last_word = std::max(last_word, word);
    }
  }
  graph.nodes = static_cast<std::int64_t>(words.size());
  graph.features = last_word + 1;
  if (graph.nodes > limits.elems / graph.features) {  // the product itself might overflow
    throw DataError(fmt::format("{}: {} nodes with {} features each (allowed: {} numbers in all)", path.string(),
                                graph.nodes, graph.features, limits.elems));
  }
  fill_features(graph, words);
}

Edges read_edges(const fs::path& path) {
  const std::string text = read_text(path);
  Edges edges;
  for (const std::string_view line : lines_of(path, text)) {
    const auto ends = parse_row<std::int64_t>(line, fmt::format("{}, line {}", path.string(), edges.size() + 1), 2);
    edges.emplace_back(ends[0], ends[1]);
  }
  return edges;
}

Graph load_planetoid(const fs::path& nodes, const fs::path& edges, const GraphLimits& limits) {
  Graph graph;
  read_nodes(nodes, limits, graph);
  set_edges(graph, read_edges(edges), edges.string());
  check_graph(graph, limits, nodes.string());
  return graph;
}

/// Generates rings of nodes, one class per ring. A node's own features indicate its class only weakly, so a network
/// must use its neighbours; some edges lead to other rings.
Graph make_rings(std::size_t nodes) {
  constexpr std::size_t kRings = 5;
  constexpr std::size_t kFeatures = 16;
  constexpr std::uint64_t kSeed = 0x217265;
  if (nodes < 10 * kRings) throw DataError(fmt::format("rings:{} (allowed: {} nodes or more)", nodes, 10 * kRings));
  Graph graph;
  graph.nodes = static_cast<std::int64_t>(nodes);
  graph.features = kFeatures;
  Edges edges;
  for (std::size_t node = 0; node < nodes; ++node) {
    Draws draws(kSeed, 0, node);
    const std::size_t ring = node % kRings;
    graph.labels.push_back(static_cast<std::int64_t>(ring));
    const float share = draws.unit();
    graph.split.push_back(share < 0.1F ? NodeSplit::train : share < 0.3F ? NodeSplit::validation : NodeSplit::test);
    for (std::size_t feature = 0; feature < kFeatures; ++feature) {
      const float noise = 2.0F * (draws.unit() + draws.unit() + draws.unit() - 1.5F);
      graph.x.push_back(noise + (feature % kRings == ring ? 0.5F : 0.0F));
    }
    for (const std::size_t step : {kRings, 2 * kRings}) {  // the next two of its ring; across the end, of another
      edges.emplace_back(node, (node + step) % nodes);
    }
    if (draws.below(2) == 1) edges.emplace_back(node, draws.below(static_cast<std::uint32_t>(nodes)));
  }
  set_edges(graph, edges, "rings");
  check_graph(graph, {}, "rings");
  return graph;
}

}  // namespace

void set_edges(Graph& graph, const Edges& edges, const std::string& place) {
  Edges both;
  both.reserve(2 * edges.size());
  for (const auto& [from, to] : edges) {
    if (std::min(from, to) < 0 || std::max(from, to) >= graph.nodes) {
      throw DataError(
          fmt::format("{}: an edge from {} to {} (allowed: nodes 0 to {})", place, from, to, graph.nodes - 1));
    }
    if (from == to) continue;
    both.emplace_back(from, to);
    both.emplace_back(to, from);
  }
  std::ranges::sort(both);
  both.erase(std::unique(both.begin(), both.end()), both.end());
  for (const auto& [from, to] : both) {
    graph.from.push_back(from);
    graph.to.push_back(to);
  }
}

void check_graph(Graph& graph, const GraphLimits& limits, const std::string& place) {
  for (std::size_t node = 0; node < graph.labels.size(); ++node) {
    const std::int64_t label = graph.labels[node];
    if (label >= Graph::kNoLabel && label < limits.classes) continue;
    throw DataError(fmt::format("{}: node {} has label {} (allowed: 0 to {}, or {} for none)", place, node, label,
                                limits.classes - 1, Graph::kNoLabel));
  }
  graph.classes = graph.labels.empty() ? 0 : 1 + std::ranges::max(graph.labels);
  for (const NodeSplit split : {NodeSplit::train, NodeSplit::validation, NodeSplit::test}) {
    if (std::ranges::find(graph.split, split) == graph.split.end()) {
      throw DataError(fmt::format("{}: a split without nodes (expected: train, validation and test nodes)", place));
    }
  }
  for (std::size_t node = 0; node < graph.labels.size(); ++node) {
    if (graph.labels[node] < 0 && graph.split[node] != NodeSplit::none) {
      throw DataError(fmt::format("{}: node {} is in a split and has no label", place, node));
    }
  }
}

Graph load_graph(const std::string& where, const GraphLimits& limits) {
  constexpr std::size_t kNodes = 1000;
  if (const auto nodes = generated_count(where, "rings", kNodes)) return make_rings(*nodes);
  if (fs::is_regular_file(where + ".nodes")) return load_planetoid(where + ".nodes", where + ".edges", limits);
  if (fs::is_directory(where)) {
    if (fs::is_directory(fs::path(where) / "raw")) return load_csv_graph(where, limits);
    const fs::path nodes = find_by_ending(where, ".nodes");
    if (!nodes.empty()) return load_planetoid(nodes, fs::path(nodes).replace_extension(".edges"), limits);
  }
  throw DataError(
      fmt::format("'{}' is no graph (allowed: rings[:NODES], a folder with *.nodes and *.edges or STEM of "
                  "both, a folder with raw/edge.csv[.gz], raw/node-feat.csv[.gz], ...)",
                  where));
}

void share_features(Graph& graph) {
  const auto features = static_cast<std::size_t>(graph.features);
  for (std::size_t node = 0; node < static_cast<std::size_t>(graph.nodes); ++node) {
    const std::span row = std::span(graph.x).subspan(node * features, features);
    const float sum = std::max(1.0F, std::accumulate(row.begin(), row.end(), 0.0F));
    for (float& value : row) value /= sum;
  }
}

}  // namespace actzip::data
