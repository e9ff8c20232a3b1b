// Sums over the threads of one block.
#pragma once

#include "cuda/launch.cuh"

namespace actzip::cuda {

inline constexpr int kSumThreads = 1024;  ///< of the blocks that sum
inline constexpr int kSumWarps = kSumThreads / kWarp;

template <class T>
struct BlockSum {
  T before;  ///< over the threads before this one
  T all;
};

/// The sums of `value`. All threads of a block of kSumThreads call it.
template <class T>
__device__ BlockSum<T> block_sum(T value) {
  __shared__ T warp_sums[kSumWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  T sum = value;
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const T other = __shfl_up_sync(~0U, sum, offset);
    if (lane >= offset) sum += other;
  }
  if (lane == kWarp - 1) warp_sums[threadIdx.x / kWarp] = sum;
  __syncthreads();
  BlockSum<T> result{sum - value, 0};
  for (int warp = 0; warp < kSumWarps; ++warp) {
    if (warp < static_cast<int>(threadIdx.x) / kWarp) result.before += warp_sums[warp];
    result.all += warp_sums[warp];
  }
  __syncthreads();  // before the next round writes
  return result;
}

}  // namespace actzip::cuda
