// Sums over the threads of one block.
#pragma once

#include "cuda/launch.cuh"

namespace actzip::cuda {

inline constexpr int kSumThreads = 1024;  ///< of a block that computes sums
inline constexpr int kSumWarps = kSumThreads / kWarp;

template <class T>
struct BlockSum {
  T before;  ///< the sum over the threads before this one
  T all;
};

/// The sum of `value` over this lane and those before it.
template <class T>
__device__ T sum_up_to_lane(T value) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const T other = __shfl_up_sync(~0U, value, offset);
    if (lane >= offset) value += other;
  }
  return value;
}

/// Sums `value` over a block of kSumThreads threads, all of which call it. Every warp adds up the results of all warps,
/// which is faster than one warp telling the others.
template <class T>
__device__ BlockSum<T> block_sum(T value) {
  __shared__ T warp_sums[kSumWarps];
  static_assert(kSumWarps == kWarp, "each lane reads what one warp found");
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const T sum = sum_up_to_lane(value);
  if (lane == kWarp - 1) warp_sums[warp] = sum;
  __syncthreads();
  const T up_to_warp = sum_up_to_lane(warp_sums[lane]);
  const T warps_before = __shfl_sync(~0U, up_to_warp, warp - 1);
  const BlockSum<T> result{sum - value + (warp > 0 ? warps_before : T{0}), __shfl_sync(~0U, up_to_warp, kWarp - 1)};
  __syncthreads();  // before the next call writes warp_sums
  return result;
}

}  // namespace actzip::cuda
