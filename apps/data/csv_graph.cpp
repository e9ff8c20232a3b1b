// Reads graphs from tables as the Open Graph Benchmark publishes them: raw/*.csv.gz and split/NAME/*.csv.gz.
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>

#include "file.hpp"
#include "graph_parts.hpp"
#include "numbers.hpp"

namespace actzip::data {
namespace {

namespace fs = std::filesystem;

/// Returns the file `path` or `path`.gz. Throws DataError if there is neither.
fs::path find_table(const fs::path& path) {
  for (const fs::path& candidate : {path, fs::path(path.string() + ".gz")}) {
    if (fs::is_regular_file(candidate)) return candidate;
  }
  throw DataError(fmt::format("{}[.gz]: no such file", path.string()));
}

/// Reads a whole file; zlib unpacks it if it is compressed.
std::string unpack(const fs::path& path) {
  const std::unique_ptr<gzFile_s, decltype(&gzclose)> file(gzopen(path.c_str(), "rb"), &gzclose);
  if (!file) throw DataError(fmt::format("{}: cannot be opened", path.string()));
  constexpr unsigned kAtOnce = 1U << 16U;
  gzbuffer(file.get(), kAtOnce);
  std::string text;
  while (true) {
    const std::size_t before = text.size();
    text.resize(before + kAtOnce);
    const int count = gzread(file.get(), text.data() + before, kAtOnce);
    text.resize(before + static_cast<std::size_t>(std::max(count, 0)));
    int status = Z_OK;
    const char* message = gzerror(file.get(), &status);
    if (count < 0 || (status != Z_OK && status != Z_STREAM_END)) {
      throw DataError(fmt::format("{}: cannot be unpacked: {}", path.string(), message));
    }
    if (count == 0) return text;
  }
}

template <class Number>
struct Table {
  std::vector<Number> values;
  std::size_t rows = 0;
  std::size_t columns = 0;
};

/// Reads a table whose rows must all have as many numbers as the first.
template <class Number>
Table<Number> read_table(const fs::path& stem) {
  const fs::path path = find_table(stem);
  const std::string text = unpack(path);
  Table<Number> table;
  for (const std::string_view line : lines_of(path, text)) {
    const std::size_t columns = append_row(line, path.string(), table.values);
    if (table.rows == 0) table.columns = columns;
    ++table.rows;
    if (columns != table.columns || columns == 0) {
      throw DataError(fmt::format("{}, line {}: {} numbers (expected: {}, as in the first)", path.string(), table.rows,
                                  columns, table.columns));
    }
  }
  return table;
}

/// A single feature that is not finite would make the loss of every step not finite.
void check_finite(const Table<float>& features, const fs::path& path) {
  for (std::size_t i = 0; i < features.values.size(); ++i) {
    if (std::isfinite(features.values[i])) continue;
    throw DataError(fmt::format("{}: feature {} of node {} is {} (allowed: finite numbers)", path.string(),
                                i % features.columns, i / features.columns, features.values[i]));
  }
}

void read_splits(const fs::path& folder, Graph& graph) {
  graph.split.assign(static_cast<std::size_t>(graph.nodes), NodeSplit::none);
  constexpr std::array<std::pair<const char*, NodeSplit>, 3> kFiles = {
      {{"train.csv", NodeSplit::train}, {"valid.csv", NodeSplit::validation}, {"test.csv", NodeSplit::test}}};
  for (const auto& [name, split] : kFiles) {
    for (const std::int64_t node : read_table<std::int64_t>(folder / name).values) {
      if (node < 0 || node >= graph.nodes) {
        throw DataError(fmt::format("{}: node {} (allowed: 0 to {})", (folder / name).string(), node, graph.nodes - 1));
      }
      graph.split[static_cast<std::size_t>(node)] = split;
    }
  }
}

/// Finds the only folder in split, whatever its name; for ogbn-arxiv it is split/time.
fs::path find_split_folder(const fs::path& folder) {
  fs::path found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder / "split", ignored)) {
    if (!entry.is_directory()) continue;
    if (!found.empty()) throw DataError(fmt::format("{}: two splits (allowed: one)", (folder / "split").string()));
    found = entry.path();
  }
  if (found.empty())
    throw DataError(fmt::format("{}: no split (expected: a folder such as split/time)", folder.string()));
  return found;
}

}  // namespace

Graph load_csv_graph(const std::string& where, const GraphLimits& limits) {
  const fs::path raw = fs::path(where) / "raw";
  auto features = read_table<float>(raw / "node-feat.csv");
  check_finite(features, raw / "node-feat.csv");
  auto labels = read_table<std::int64_t>(raw / "node-label.csv");
  if (labels.columns != 1 || labels.rows != features.rows) {
    throw DataError(fmt::format("{}: {} rows of features, but {} x {} labels (expected: one label a row)", raw.string(),
                                features.rows, labels.rows, labels.columns));
  }
  Graph graph;
  graph.nodes = static_cast<std::int64_t>(features.rows);
  graph.features = static_cast<std::int64_t>(features.columns);
  graph.x = std::move(features.values);
  graph.labels = std::move(labels.values);
  read_splits(find_split_folder(where), graph);

  const auto ends = read_table<std::int64_t>(raw / "edge.csv");
  if (ends.columns != 2)
    throw DataError(fmt::format("{}: {} columns of edges (expected: 2)", raw.string(), ends.columns));
  Edges edges;
  edges.reserve(ends.rows);
  for (std::size_t i = 0; i < ends.rows; ++i) edges.emplace_back(ends.values[2 * i], ends.values[2 * i + 1]);
  set_edges(graph, edges, (raw / "edge.csv").string());
  check_graph(graph, limits, where);
  return graph;
}

}  // namespace actzip::data
