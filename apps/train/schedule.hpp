// The learning rate over a training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace actzip::train {

struct Schedule {
  std::string kind = "cosine";          ///< constant, cosine, cosine-by-epoch, one-cycle, step
  double warm_up = -1;                  ///< part of all steps in which the rate rises; -1: 0, or 0.3 for one-cycle
  std::vector<double> milestones = {};  ///< of `step`: parts of all steps; none: 0.5 and 0.75
  double factor = 0.1;                  ///< of `step`, at each milestone
};

/// What the learning rate is multiplied with in this step of so many, of which an epoch has `steps_of_epoch`.
///   constant         1
///   cosine           a straight line up during the warm-up, then half a cosine to 0
///   cosine-by-epoch  the same, changing only where an epoch begins
///   one-cycle        half a cosine from 1/25 up to 1, then half a cosine down to 1/250,000
///   step             1, times `factor` after each milestone
/// With a warm-up, all but one-cycle begin with a straight line that reaches 1 at its end.
double rate_factor(const Schedule& schedule, std::int64_t step, std::int64_t steps, std::int64_t steps_of_epoch);

}  // namespace actzip::train
