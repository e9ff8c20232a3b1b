// What the operators of one compiled graph share while it runs.
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
  const void* seeds = nullptr;     ///< by which operators identify the graph
};

/// Returns the graph that began last on this thread.
const RunningGraph& running_graph();
void set_running_graph(RunningGraph graph);

/// Returns how many tensors all graphs have decoded. A changed number means that a backward has run.
std::uint64_t backwards_of_graphs();

}  // namespace actzip::torch
