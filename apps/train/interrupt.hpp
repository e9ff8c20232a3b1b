// Handles Ctrl-C and termination, which the trainer checks for between steps. A second signal of the same kind ends the
// program at once.
#pragma once

namespace actzip::train {

void watch_interrupts();

/// Returns the number of the signal received, or 0.
int interrupted_by() noexcept;

}  // namespace actzip::train
