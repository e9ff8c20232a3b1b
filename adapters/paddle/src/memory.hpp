// The core's memory and threads, lent by Paddle.
#pragma once

#include "actzip/memory.hpp"
#include "actzip/stream.hpp"

namespace actzip::paddle_adapter {

/// Paddle's own allocator, so that its statistics count what is kept.
Memory& paddle_memory();

/// The CPU, on the threads of Paddle's OpenMP: as many as OMP_NUM_THREADS says, which Paddle sets to 1 unless told.
Stream cpu_stream();

}  // namespace actzip::paddle_adapter
