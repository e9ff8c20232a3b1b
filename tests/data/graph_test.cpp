#include "data/graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <set>

#include "made_up.hpp"

namespace actzip::data {
namespace {

using test::TemporaryFolder;
using test::thrown_by;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kNodes = "0\ttrain\t0 2\n1\tval\t1\n-1\t-\t\n1\ttest\t2 3\n";

TEST(GraphTest, reads_nodes_and_edges) {
  const TemporaryFolder folder;
  folder.write("g.nodes", kNodes);
  folder.write("g.edges", "0\t1\n1 0\n3 3\n3\t0\n");
  for (const std::string& where : {folder.string(), (folder.path() / "g").string()}) {
    Graph graph = load_graph(where);
    EXPECT_EQ(graph.nodes, 4);
    EXPECT_EQ(graph.features, 4);
    EXPECT_EQ(graph.classes, 2);
    EXPECT_THAT(graph.x, ElementsAre(1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1));
    EXPECT_THAT(graph.labels, ElementsAre(0, 1, -1, 1));
    EXPECT_THAT(graph.split, ElementsAre(NodeSplit::train, NodeSplit::validation, NodeSplit::none, NodeSplit::test));
    EXPECT_THAT(graph.from, ElementsAre(0, 0, 1, 3));
    EXPECT_THAT(graph.to, ElementsAre(1, 3, 0, 0));
    share_features(graph);
    EXPECT_THAT(graph.x, ElementsAre(.5, 0, .5, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, .5, .5));
  }
}

TEST(GraphTest, wrong_files_are_named) {
  const TemporaryFolder folder;
  const auto load = [&](std::string_view nodes, std::string_view edges) {
    folder.write("g.nodes", nodes);
    folder.write("g.edges", edges);
    return thrown_by<DataError>([&] { (void)load_graph(folder.string()); });
  };
  EXPECT_THAT(load("0\tsome\t1\n", "0 1\n"), HasSubstr("g.nodes, line 1: split 'some' (allowed: train, val, test, -)"));
  EXPECT_THAT(load("0 train 1\n", "0 1\n"), HasSubstr("g.nodes, line 1: '0 train 1' (expected: label, tab"));
  EXPECT_THAT(load("0\ttrain\t1 x\n", "0 1\n"), HasSubstr("g.nodes, line 1: 'x' (expected: numbers)"));
  EXPECT_THAT(load(kNodes, "0 4\n"), HasSubstr("g.edges: an edge from 0 to 4 (allowed: nodes 0 to 3)"));
  EXPECT_THAT(load(kNodes, "0 1\n0 1 2\n"), HasSubstr("g.edges, line 2: '0 1 2' (expected: 2 numbers)"));
  EXPECT_THAT(load(kNodes, "0 1"), HasSubstr("truncated"));
  EXPECT_THAT(load("0\ttrain\t1\n", "0 0\n"), HasSubstr("a split without nodes"));
  EXPECT_THAT(load("-1\ttrain\t1\n0\tval\t1\n0\ttest\t1\n", "0 1\n"),
              HasSubstr("node 0 is in a split and has no label"));
  EXPECT_THAT(thrown_by<DataError>([] { (void)load_graph("/no/such"); }), HasSubstr("rings[:NODES]"));
}

TEST(GraphTest, numbers_that_would_take_all_memory_are_refused) {
  const TemporaryFolder folder;
  const auto load = [&](std::string_view nodes, const GraphLimits& limits = {}) {
    folder.write("g.nodes", nodes);
    folder.write("g.edges", "0 1\n");
    return thrown_by<DataError>([&] { (void)load_graph(folder.string(), limits); });
  };
  // Four rows of 2^62 features are 2^64 numbers, which is 0 of them in 64 bits.
  EXPECT_THAT(load("0\ttrain\t0\n1\tval\t1\n0\ttest\t2\n1\t-\t4611686018427387903\n"),
              HasSubstr("g.nodes, line 4: feature 4611686018427387903 (allowed: 0 to 1048575)"));
  EXPECT_THAT(load("0\ttrain\t9223372036854775807\n"), HasSubstr("line 1: feature 9223372036854775807 (allowed: 0"));
  EXPECT_THAT(load("0\ttrain\t-1\n"), HasSubstr("line 1: feature -1 (allowed: 0"));
  EXPECT_THAT(load("0\ttrain\t1048576\n"), HasSubstr("line 1: feature 1048576 (allowed: 0 to 1048575)"));
  EXPECT_THAT(load("0\ttrain\t9\n1\tval\t1\n0\ttest\t2\n", {.elems = 29}),
              HasSubstr("g.nodes: 3 nodes with 10 features each (allowed: 29 numbers in all)"));
  for (const char* const label : {"9223372036854775807", "1048576", "-2"}) {
    EXPECT_THAT(load(std::string("0\ttrain\t0\n1\tval\t1\n0\ttest\t2\n") + label + "\t-\t3\n"),
                HasSubstr(std::string("node 3 has label ") + label + " (allowed: 0 to 1048575, or -1 for none)"));
  }
}

void write_packed(const TemporaryFolder& folder, const std::string& name, const std::string& content) {
  const std::string path = folder.write(name, "").string();
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, content.data(), static_cast<unsigned>(content.size())), static_cast<int>(content.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
}

TEST(GraphTest, reads_tables_packed_or_not) {
  const TemporaryFolder folder;
  write_packed(folder, "raw/edge.csv.gz", "0,1\n2,1\n0,1\n");
  write_packed(folder, "raw/node-feat.csv.gz", "0.5,-1e-3\n1,2\n-0.25,3\n");
  folder.write("raw/node-label.csv", "4\n0\n2\n");
  write_packed(folder, "split/time/train.csv.gz", "2\n");
  folder.write("split/time/valid.csv", "0\n");
  folder.write("split/time/test.csv", "1\n");
  const Graph graph = load_graph(folder.string());
  EXPECT_EQ(graph.classes, 5);
  EXPECT_EQ(graph.features, 2);
  EXPECT_THAT(graph.x, ElementsAre(0.5F, -1e-3F, 1, 2, -0.25F, 3));
  EXPECT_THAT(graph.labels, ElementsAre(4, 0, 2));
  EXPECT_THAT(graph.split, ElementsAre(NodeSplit::validation, NodeSplit::test, NodeSplit::train));
  EXPECT_THAT(graph.from, ElementsAre(0, 1, 1, 2));
  EXPECT_THAT(graph.to, ElementsAre(1, 0, 2, 1));

  write_packed(folder, "raw/node-feat.csv.gz", "0.5,-1e-3\n1,nan\n-0.25,3\n");
  EXPECT_THAT(thrown_by<DataError>([&] { (void)load_graph(folder.string()); }),
              HasSubstr("node-feat.csv: feature 1 of node 1 is nan (allowed: finite numbers)"));
  write_packed(folder, "raw/node-feat.csv.gz", "0.5,-1e-3\n1,2\n-0.25,3\n");
  folder.write("raw/node-label.csv", "4\n9223372036854775807\n2\n");
  EXPECT_THAT(thrown_by<DataError>([&] { (void)load_graph(folder.string()); }),
              HasSubstr("node 1 has label 9223372036854775807"));

  folder.write("raw/node-label.csv", "4\n0\n2\n");
  std::filesystem::resize_file(folder.path() / "raw/edge.csv.gz", 20);
  EXPECT_THAT(thrown_by<DataError>([&] { (void)load_graph(folder.string()); }),
              HasSubstr("edge.csv.gz: cannot be unpacked"));
  std::filesystem::remove(folder.path() / "raw/edge.csv.gz");
  EXPECT_THAT(thrown_by<DataError>([&] { (void)load_graph(folder.string()); }),
              HasSubstr("edge.csv[.gz]: no such file"));
}

TEST(GraphTest, rings_are_the_same_for_ever_and_mostly_know_their_own) {
  const Graph graph = load_graph("rings");
  EXPECT_EQ(graph.nodes, 1000);
  EXPECT_EQ(graph.classes, 5);
  std::set<std::pair<std::int64_t, std::int64_t>> edges;
  std::size_t same = 0;
  for (std::size_t i = 0; i < graph.from.size(); ++i) {
    edges.emplace(graph.from[i], graph.to[i]);
    const auto label = [&](std::int64_t node) { return graph.labels[static_cast<std::size_t>(node)]; };
    same += label(graph.from[i]) == label(graph.to[i]) ? 1 : 0;
  }
  EXPECT_EQ(edges.size(), graph.from.size());
  for (const auto& [from, to] : edges) EXPECT_TRUE(edges.contains({to, from}));
  const double share = static_cast<double>(same) / static_cast<double>(edges.size());
  EXPECT_GT(share, 0.75);
  EXPECT_LT(share, 0.95);
  EXPECT_EQ(graph.x, load_graph("rings:1000").x);
  EXPECT_THAT(thrown_by<DataError>([] { (void)load_graph("rings:7"); }),
              HasSubstr("rings:7 (allowed: 50 nodes or more)"));
}

}  // namespace
}  // namespace actzip::data
