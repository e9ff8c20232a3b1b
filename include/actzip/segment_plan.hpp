// Distributes bits over the segments of a tensor, on the device where the tensor is: no table is copied, and nothing
// waits.
//
//   weigh_segments(activations, {factors, 4 * 64}, {weights, 4 * 64}, stream);       // 64 samples
//   plan_segments(Rotated{}, {weights, 4 * 64}, {64, 2 * 64}, {table, 64}, summary, stream);
//   encode(Rotated{}, activations, bytes, seed, stream, {64, 2 * 64}, {}, {table, 64});
//
// On CUDA each call is one kernel launch and can be captured into a graph. The caller owns all memory, which is on the
// device of `stream` and stays valid until the work there is done. docs/plan.md has the mathematics.
#pragma once

#include <cstdint>

#include "actzip/spec.hpp"
#include "actzip/stream.hpp"
#include "actzip/types.hpp"
#include "actzip/view.hpp"

namespace actzip {

/// The most segments that plan_segments() supports.
inline constexpr std::int64_t kMostPlannedSegments = 4096;

/// The result of a plan. The device writes it; it may lie in memory that the host can read as well.
struct SegmentSummary {
  std::int32_t fewest_bits = 0;
  std::int32_t most_bits = 0;
  float mean_bits = 0.0F;
  /// Relative squared error of all segments together, each weighted by its weight: the counterpart of expected_error()
  /// for equal bits.
  float error = 0.0F;
  /// The same, if the average were 1 bit, 2 bits, and so on. Averages below the least or above the most bits count as
  /// these.
  float error_at[8] = {};
};

/// Computes the weight of each segment: its energy around the means of its groups, to which the errors of the codecs
/// are proportional, times its factor. Without factors, it is the root of the energy: see docs/plan.md.
///
/// The energy is estimated from whole groups of 256 elements at equal distances: all groups if there are few, one in
/// nine if there are many. `src` is dense and of a floating type. `weights` has one binary32 number for each segment;
/// the segments divide the elements and have 256 or more each. `factors` has as many numbers, or none. Throws Error:
/// unsupported_dtype, invalid_view, invalid_segments, wrong_size, misaligned, device_mismatch, backend_unavailable,
/// cuda_failure.
void weigh_segments(const ConstTensorView& src, ConstByteSpan factors, ByteSpan weights, const Stream& stream);

/// Computes the bits of least weighted error: minimises the sum of weight * error(bits), with bits that add up to
/// segments.total_bits and at least `least` bits for each segment. Exact, since all segments are equally long.
///
/// `spec` is `affine` or `rotated`; its own bits do not matter. `weights` has segments.count numbers; negative ones and
/// NaN count as 0. `table` receives one byte for each segment, as encode() reads them. `summary` may be null. Among
/// equal segments, the first ones get what is left over. Throws Error: invalid_spec, invalid_segments, wrong_size,
/// misaligned, device_mismatch, backend_unavailable, cuda_failure.
void plan_segments(const CodecSpec& spec, ConstByteSpan weights, Segments segments, ByteSpan table,
                   SegmentSummary* summary, const Stream& stream, Bits least = Bits(1));

}  // namespace actzip
