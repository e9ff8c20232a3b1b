// Learning rate schedules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace actzip::train {

struct Schedule {
  std::string kind = "cosine";          ///< constant, cosine, cosine-by-epoch, one-cycle, step
  double warm_up = -1;                  ///< share of all steps in which the rate rises; -1: 0, or 0.3 for one-cycle
  std::vector<double> milestones = {};  ///< for `step`: shares of all steps; empty: 0.5 and 0.75
  double factor = 0.1;                  ///< for `step`: applied at each milestone
};

/// Returns the factor of the learning rate in a step of `steps`, with `steps_of_epoch` in each epoch:
///   constant         1
///   cosine           half a cosine from 1 to 0
///   cosine-by-epoch  likewise, but changes only at the start of an epoch
///   one-cycle        half a cosine from 1/25 up to 1, then half a cosine down to 1/250,000
///   step             1, times `factor` after each milestone
/// With a warm-up, all but one-cycle begin with a straight line that reaches 1 at its end.
double rate_factor(const Schedule& schedule, std::int64_t step, std::int64_t steps, std::int64_t steps_of_epoch);

}  // namespace actzip::train
