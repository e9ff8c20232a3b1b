// The loops of the current level.
#pragma once

#include "cpu/loops.hpp"

namespace actzip::cpu {

/// Throws Error(backend_unavailable) if ACTZIP_CPU_LEVEL names a level that this machine cannot run.
const Loops& current_loops();

}  // namespace actzip::cpu
