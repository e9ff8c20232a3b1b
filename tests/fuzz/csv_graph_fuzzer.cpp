// Tables of the Open Graph Benchmark, compressed or not: load_graph() must throw DataError or return a graph.
#include <array>
#include <cstdlib>

#include "data/graph.hpp"
#include "input_files.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace actzip;
  constexpr std::array<const char*, 6> kNames = {"raw/edge.csv",         "raw/node-feat.csv",    "raw/node-label.csv",
                                                 "split/time/train.csv", "split/time/valid.csv", "split/time/test.csv"};
  static const fuzz::InputFiles files;
  std::filesystem::create_directories(files.path() / "raw");
  std::filesystem::create_directories(files.path() / "split/time");
  const auto parts = fuzz::parts_of(fuzz::as_text(data, size), kNames.size());
  for (std::size_t i = 0; i < kNames.size(); ++i) files.write(kNames[i], parts[i]);
  try {
    const data::Graph graph = data::load_graph(files.path().string());
    if (graph.x.size() != static_cast<std::size_t>(graph.nodes * graph.features)) std::abort();
  } catch (const data::DataError&) {
    return 0;
  }
  return 0;
}
