// Runs a training to its last step, from the beginning or from a checkpoint.
#pragma once

#include "options.hpp"

namespace actzip::train {

/// Exit codes besides 1 for failures and 2 for wrong usage. An interrupted run returns 128 plus the signal's number.
inline constexpr int kDone = 0;
inline constexpr int kNotFinite = 3;

/// Trains or evaluates, according to the options, and returns the exit code. Throws the exceptions of its parts.
int train(const Options& options);

}  // namespace actzip::train
