// The macros of actzip: this list is closed.
#pragma once

/// A function that is the same on the host and on a device. Always inlined: the CPU loops are built once for each
/// instruction set, and an out-of-line copy from one of those builds must never serve another.
#if defined(__CUDACC__)
#define ACTZIP_HD __host__ __device__ __forceinline__
#else
#define ACTZIP_HD inline __attribute__((always_inline))
#endif
