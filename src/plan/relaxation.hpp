// The knapsack's linear relaxation, in which one item may be divided between two options.
#pragma once

#include <cstdint>

#include "plan/knapsack.hpp"

namespace actzip::plan {

struct Relaxation {
  Picks picks;             ///< the optimum, with the divided item rounded down
  std::int64_t slack = 0;  ///< the capacity that these picks leave
  double price = 0.0;      ///< of a unit of weight: what the next one would save; 0 if every item has its best option
  Picks filled;            ///< `picks`, filled up greedily with what else fits
};

/// Requires that within each item cost falls and weight rises, and that the first options together fit.
Relaxation relax(const Problem& problem);

}  // namespace actzip::plan
