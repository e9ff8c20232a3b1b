// Ctrl-C and termination: asked for between two steps. The second one ends the program at once.
#pragma once

namespace actzip::train {

void watch_interrupts();

/// The number of the signal that came; 0 if none has.
int interrupted_by() noexcept;

}  // namespace actzip::train
