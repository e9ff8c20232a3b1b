// Decides the bits of segments with a prefix sum over all segments, in one block. A few thousand segments take one
// round.
#include "cuda/block_sum.cuh"
#include "cuda/segment_bits.cuh"

namespace actzip::cuda {
namespace {

constexpr int kPlaceThreads = kSumThreads;
constexpr int kEach = 8;  ///< neighbouring segments per thread and round

__global__ void __launch_bounds__(kPlaceThreads)
    place_segments_kernel(const std::uint8_t* asked, std::uint8_t* bits, std::uint32_t* starts, std::uint32_t* words,
                          const format::SegmentRuns runs) {
  __shared__ std::int64_t gap[2];  // words without codes: at most one segment has room left that fits no further bit
  if (threadIdx.x < 2) gap[threadIdx.x] = 0;
  __syncthreads();
  std::int64_t earlier = 0;
  for (std::int64_t round = 0; round < runs.segments; round += kPlaceThreads * kEach) {
    const std::int64_t first = round + threadIdx.x * kEach;
    const auto count = static_cast<int>(min(max(runs.segments - first, std::int64_t{0}), std::int64_t{kEach}));
    std::int64_t own = 0;
    for (int i = 0; i < count; ++i) own += runs.extra(asked[first + i]);
    const BlockSum<std::int64_t> sum = block_sum(own);
    std::int64_t extra = earlier + sum.before;
    for (int i = 0; i < count; ++i) {
      const std::int64_t s = first + i;
      const format::SegmentRun run = format::granted_run(runs, s, extra, asked[s]);
      extra += runs.extra(asked[s]);
      bits[s] = static_cast<std::uint8_t>(run.bits);
      starts[s] = static_cast<std::uint32_t>(run.start);
      const std::int64_t end = run.start + runs.words(run.bits);
      const std::int64_t next = s + 1 < runs.segments ? runs.start(s + 1, extra) : end;
      if (next > end) {
        gap[0] = end;
        gap[1] = next;
      }
    }
    earlier += sum.all;
  }
  __syncthreads();
  for (std::int64_t i = gap[0] + threadIdx.x; i < gap[1]; i += kPlaceThreads) words[i] = 0;
}

}  // namespace

void place_segments(const SegmentTable& table, const codec::EncodeJob& job) {
  launch_blocks(place_segments_kernel, 1, kPlaceThreads, *job.stream,
                reinterpret_cast<const std::uint8_t*>(job.segment_bits), const_cast<std::uint8_t*>(table.bits),
                const_cast<std::uint32_t*>(table.starts), reinterpret_cast<std::uint32_t*>(table.codes), table.runs);
}

}  // namespace actzip::cuda
