// Which segment of a tensor gets how many bits, decided where the tensor is: no table travels, nobody waits.
//
//   weigh_segments(activations, {factors, 4 * 64}, {weights, 4 * 64}, stream);       // 64 samples
//   plan_segments(Rotated{}, {weights, 4 * 64}, {64, 2 * 64}, {table, 64}, summary, stream);
//   encode(Rotated{}, activations, bytes, seed, stream, {64, 2 * 64}, {}, {table, 64});
//
// Each is one kernel launch on CUDA and can be captured into a graph. All memory is the caller's, on the device of
// `stream`, and stays valid until the work there is done. docs/plan.md has the mathematics.
#pragma once

#include <cstdint>

#include "actzip/spec.hpp"
#include "actzip/stream.hpp"
#include "actzip/types.hpp"
#include "actzip/view.hpp"

namespace actzip {

/// Segments that plan_segments() can take.
inline constexpr std::int64_t kMostPlannedSegments = 4096;

/// What became of a plan. The device writes it; it may lie in memory that the host can read, too.
struct SegmentSummary {
  std::int32_t fewest_bits = 0;
  std::int32_t most_bits = 0;
  float mean_bits = 0.0F;
  /// Relative squared error of all segments together, each counted by its weight: what expected_error() is for equal
  /// bits.
  float error = 0.0F;
  /// The same, had the average been 1 bit, 2 bits, and so on; fewer than the least and more than the most are as these.
  float error_at[8] = {};
};

/// The weight of each segment: its energy around the means of its groups, which the errors of the codecs are
/// proportional to, times its factor; without factors the root of its energy, see docs/plan.md.
///
/// The energy is estimated from whole groups of 256 elements at equal distances: all of a few, one in nine of many.
/// `src` is dense, of a floating type; `weights` has one binary32 number for each segment, which divide the elements
/// and have 256 or more each. `factors` has as many, or none. Throws Error: unsupported_dtype, invalid_view,
/// invalid_segments, wrong_size, misaligned, device_mismatch, backend_unavailable, cuda_failure.
void weigh_segments(const ConstTensorView& src, ConstByteSpan factors, ByteSpan weights, const Stream& stream);

/// The bits of least weighted error: minimises the sum of weight * error(bits) with bits that add up to
/// segments.total_bits, `least` or more for each segment. All segments being equally long, this is exact.
///
/// `spec` is `affine` or `rotated`, whose own bits do not matter; `weights` has segments.count numbers, of which those
/// that are no numbers or negative count as 0; `table` gets a byte for each segment, as encode() takes them; `summary`
/// may be null. Of equal segments the first ones get what is left over.
/// Throws Error: invalid_spec, invalid_segments, wrong_size, misaligned, device_mismatch, backend_unavailable,
/// cuda_failure.
void plan_segments(const CodecSpec& spec, ConstByteSpan weights, Segments segments, ByteSpan table,
                   SegmentSummary* summary, const Stream& stream, Bits least = Bits(1));

}  // namespace actzip
