#include "plan/relaxation.hpp"

#include <algorithm>
#include <tuple>

namespace actzip::plan {

namespace {

/// A step from one corner of an item's lower convex hull to the next.
struct Step {
  double slope;  ///< cost saved for each unit of weight
  std::uint32_t item;
  std::uint32_t from;
  std::uint32_t to;
};

/// The only expression for slopes, so that corners and steps are compared by the same rounded numbers.
double slope(const Option& from, const Option& to) {
  return (from.cost - to.cost) / static_cast<double>(to.weight - from.weight);
}

/// Finds the corners of the hull of an item's options. Reuses the memory of `corners`.
void find_hull(const Problem& problem, std::size_t item, Picks& corners) {
  corners.clear();
  for (std::uint32_t i = problem.first[item]; i < problem.first[item + 1]; ++i) {
    const Option& next = problem.options[i];
    while (corners.size() >= 2) {
      const Option& last = problem.options[corners.back()];
      const Option& before = problem.options[corners[corners.size() - 2]];
      if (slope(before, last) > slope(last, next)) break;
      corners.pop_back();
    }
    corners.push_back(i);
  }
}

/// All steps of all items, the most worthwhile first; those of one item stay in their order.
std::vector<Step> sorted_steps(const Problem& problem) {
  std::vector<Step> steps;
  steps.reserve(problem.options.size());
  Picks corners;
  for (std::uint32_t item = 0; item < problem.items(); ++item) {
    find_hull(problem, item, corners);
    for (std::size_t i = 1; i < corners.size(); ++i) {
      const double gain = slope(problem.options[corners[i - 1]], problem.options[corners[i]]);
      steps.push_back({gain, item, corners[i - 1], corners[i]});
    }
  }
  std::ranges::sort(steps, [](const Step& a, const Step& b) {
    return std::tie(b.slope, a.from) < std::tie(a.slope, b.from);  // `from` rises with the item as well
  });
  return steps;
}

}  // namespace

Relaxation relax(const Problem& problem) {
  Relaxation result;
  result.filled.assign(problem.first.begin(), problem.first.end() - 1);
  std::int64_t room = problem.capacity;
  for (const std::uint32_t pick : result.filled) room -= problem.options[pick].weight;

  bool all_fit = true;
  for (const Step& step : sorted_steps(problem)) {
    const std::int64_t weight = problem.options[step.to].weight - problem.options[step.from].weight;
    if (all_fit && weight > room) {
      all_fit = false;
      result.picks = result.filled;
      result.slack = room;
      result.price = step.slope;
    }
    if (weight > room || result.filled[step.item] != step.from) continue;
    result.filled[step.item] = step.to;
    room -= weight;
  }
  if (all_fit) {
    result.picks = result.filled;
    result.slack = room;
  }
  return result;
}

}  // namespace actzip::plan
