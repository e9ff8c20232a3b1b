// A training from its first step, or from a checkpoint, to its last.
#pragma once

#include "options.hpp"

namespace actzip::train {

/// Exit codes, beside 1 for failures and 2 for wrong usage; an interrupted run gives 128 + the signal.
inline constexpr int kDone = 0;
inline constexpr int kNotFinite = 3;

/// Trains, or evaluates, as the options ask. Gives the exit code. Throws what its parts throw.
int train(const Options& options);

}  // namespace actzip::train
