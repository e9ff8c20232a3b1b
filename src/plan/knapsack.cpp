#include "plan/knapsack.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "plan/core_search.hpp"
#include "plan/relaxation.hpp"

namespace actzip::plan {

namespace {

/// The options worth considering, and their original indices.
struct Frontier {
  Problem problem;
  Picks original;
};

/// Returns the problem without options for which another option of the same item costs no more and weighs no more. The
/// rest rise in weight and fall in cost; of equal options the first stays.
Frontier frontier_of(const Problem& all) {
  Frontier frontier;
  frontier.problem.capacity = all.capacity;
  frontier.problem.options.reserve(all.options.size());
  frontier.problem.first.reserve(all.first.size());
  Picks order;
  for (std::size_t item = 0; item < all.items(); ++item) {
    order.clear();
    for (std::uint32_t i = all.first[item]; i < all.first[item + 1]; ++i) order.push_back(i);
    std::ranges::sort(order, {},
                      [&](std::uint32_t i) { return std::tuple(all.options[i].weight, all.options[i].cost, i); });
    double least = std::numeric_limits<double>::infinity();
    for (const std::uint32_t i : order) {
      if (all.options[i].cost >= least) continue;
      least = all.options[i].cost;
      frontier.problem.options.push_back(all.options[i]);
      frontier.original.push_back(i);
    }
    frontier.problem.end_item();
  }
  return frontier;
}

}  // namespace

double total_cost(const Problem& problem, const Picks& picks) {
  double total = 0.0;
  for (const std::uint32_t pick : picks) total += problem.options[pick].cost;
  return total;
}

Solution solve(const Problem& problem) {
  const Frontier frontier = frontier_of(problem);
  const Relaxation relaxation = relax(frontier.problem);
  Solution solution = search_core(frontier.problem, relaxation);
  for (std::uint32_t& pick : solution.picks) pick = frontier.original[pick];
  return solution;
}

}  // namespace actzip::plan
