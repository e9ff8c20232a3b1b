// The multiple-choice knapsack: one option of each item, least total cost, total weight within a capacity.
// Numbers only; what they stand for is known in plan.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace actzip::plan {

struct Option {
  std::int64_t weight = 0;  ///< 0 or more; the heaviest of all items together weigh at most 2^62
  double cost = 0.0;        ///< 0 to 1e200
};

/// The options of all items, one item after the other.
struct Problem {
  std::vector<Option> options;
  std::vector<std::uint32_t> first{0};  ///< for each item its first option; one more at the end
  std::int64_t capacity = 0;

  [[nodiscard]] std::size_t items() const { return first.size() - 1; }
  void end_item() { first.push_back(static_cast<std::uint32_t>(options.size())); }
};

/// For each item the number of one of the problem's options, counted over all items.
using Picks = std::vector<std::uint32_t>;

double total_cost(const Problem& problem, const Picks& picks);

struct Solution {
  Picks picks;
  double least_cost = 0.0;  ///< proven: no picks within the capacity cost less
  bool optimal = true;      ///< the cost of `picks` is the least, up to kRounding
};

/// Costs that differ by less, relative to the total, are equal.
inline constexpr double kRounding = 1e-12;

/// Requires that the lightest options of all items are within the capacity.
Solution solve(const Problem& problem);

}  // namespace actzip::plan
