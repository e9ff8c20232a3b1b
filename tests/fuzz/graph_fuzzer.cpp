// Nodes and edges: load_graph() must throw DataError or return a graph with consistent parts.
#include <algorithm>
#include <cstdlib>

#include "data/graph.hpp"
#include "input_files.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace actzip;
  static const fuzz::InputFiles files;
  const auto parts = fuzz::parts_of(fuzz::as_text(data, size), 2);
  files.write("g.nodes", parts[0]);
  files.write("g.edges", parts[1]);
  data::Graph graph;
  try {
    graph = data::load_graph((files.path() / "g").string(), {.features = 5000, .classes = 5000, .elems = 1 << 20});
  } catch (const data::DataError&) {
    return 0;
  }
  data::share_features(graph);
  const auto nodes = static_cast<std::size_t>(graph.nodes);
  const auto is_node = [&](std::int64_t end) { return end >= 0 && end < graph.nodes; };
  const bool fits = graph.labels.size() == nodes && graph.split.size() == nodes && graph.x.size() <= 1U << 20U &&
                    graph.x.size() == nodes * static_cast<std::size_t>(graph.features) &&
                    graph.from.size() == graph.to.size() && std::ranges::all_of(graph.from, is_node) &&
                    std::ranges::all_of(graph.to, is_node) && graph.classes > std::ranges::max(graph.labels);
  if (!fits) std::abort();
  return 0;
}
