// Gives the core Paddle's memory and threads.
#pragma once

#include "actzip/memory.hpp"
#include "actzip/stream.hpp"

namespace actzip::paddle_adapter {

/// Allocates from Paddle's own allocator, so its statistics include what is kept.
Memory& paddle_memory();

/// Returns a stream of the CPU that uses Paddle's OpenMP threads: as many as OMP_NUM_THREADS says, which Paddle sets to
/// 1 by default.
Stream cpu_stream();

}  // namespace actzip::paddle_adapter
