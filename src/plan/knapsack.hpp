// The multiple-choice knapsack: choose one option of each item, at the least total cost, with a total weight within a
// capacity. It knows only numbers; plan.cpp knows what they stand for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace actzip::plan {

struct Option {
  std::int64_t weight = 0;  ///< 0 or more; the heaviest options of all items together weigh at most 2^62
  double cost = 0.0;        ///< 0 to 1e200
};

/// The options of all items, one item after the other.
struct Problem {
  std::vector<Option> options;
  std::vector<std::uint32_t> first{0};  ///< for each item the index of its first option, and one more at the end
  std::int64_t capacity = 0;

  [[nodiscard]] std::size_t items() const { return first.size() - 1; }
  void end_item() { first.push_back(static_cast<std::uint32_t>(options.size())); }
};

/// For each item the index of one of the problem's options, counted over all items.
using Picks = std::vector<std::uint32_t>;

double total_cost(const Problem& problem, const Picks& picks);

struct Solution {
  Picks picks;
  double least_cost = 0.0;  ///< proven lower bound: no picks within the capacity cost less
  bool optimal = true;      ///< the cost of `picks` is the least possible, up to kRounding
};

/// Costs that differ by less than this, relative to the total, are equal.
inline constexpr double kRounding = 1e-12;

/// Requires that the lightest options of all items fit into the capacity.
Solution solve(const Problem& problem);

}  // namespace actzip::plan
