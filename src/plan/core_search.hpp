// Finds the knapsack's optimum from the relaxation's, by a search over the few items in which the two may differ.
#pragma once

#include "plan/relaxation.hpp"

namespace actzip::plan {

/// Requires what relax() requires, and its result for `problem`.
Solution search_core(const Problem& problem, const Relaxation& relaxation);

}  // namespace actzip::plan
