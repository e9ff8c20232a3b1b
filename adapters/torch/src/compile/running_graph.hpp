// What the operators of one compiled graph know of each other while it runs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "actzip/session.hpp"

namespace actzip::torch {

class GraphSession;
struct GraphSite;

/// A graph whose forward has begun.
struct RunningGraph {
  std::shared_ptr<GraphSession> session = {};
  const std::vector<GraphSite>* lines = nullptr;
  std::vector<SiteId> sites = {};  ///< of its lines, in this run
  const void* seeds = nullptr;     ///< by which its operators know it
};

/// The one that began last on this thread.
const RunningGraph& running_graph();
void set_running_graph(RunningGraph graph);

/// The bytes of a line of the graph with these seeds were decoded, on whatever thread backward runs. Does nothing for a
/// graph that began long ago.
void note_decoded(const void* seeds, std::int64_t line);

/// How many tensors were decoded, of all graphs: a step begins where that has changed.
std::uint64_t backwards_of_graphs();

}  // namespace actzip::torch
