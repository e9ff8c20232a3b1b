// The macros of actzip. This list is closed: no others are added.
#pragma once

/// A function that is the same on host and device. It is always inlined: the CPU loops are built once for each
/// instruction set, and an out-of-line copy from one of these builds must never be linked into another.
#if defined(__CUDACC__)
#define ACTZIP_HD __host__ __device__ __forceinline__
#else
#define ACTZIP_HD inline __attribute__((always_inline))
#endif
