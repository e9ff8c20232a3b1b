// The knapsack's linear relaxation, in which one item may be divided between two options.
#pragma once

#include <cstdint>

#include "plan/knapsack.hpp"

namespace actzip::plan {

struct Relaxation {
  Picks picks;             ///< its optimum, the divided item rounded down
  std::int64_t slack = 0;  ///< what these picks leave of the capacity
  double price = 0.0;      ///< of a unit of weight: what the next one would save. 0 if everything has its best option
  Picks filled;            ///< `picks`, and greedily what else fits
};

/// Requires options of falling cost and rising weight within each item, and that the first ones fit.
Relaxation relax(const Problem& problem);

}  // namespace actzip::plan
