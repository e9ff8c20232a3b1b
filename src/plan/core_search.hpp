// From the relaxation's optimum to the knapsack's: a search over the few items that may differ between the two.
#pragma once

#include "plan/relaxation.hpp"

namespace actzip::plan {

/// Requires what relax() requires, and its result for `problem`.
Solution search_core(const Problem& problem, const Relaxation& relaxation);

}  // namespace actzip::plan
