// The loops of the level in use.
#pragma once

#include "cpu/loops.hpp"

namespace actzip::cpu {

/// Throws Error(backend_unavailable) if the environment asks for a level that this machine cannot run.
const Loops& current_loops();

}  // namespace actzip::cpu
