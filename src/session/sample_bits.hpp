// Distributes bits over the samples of a tensor: which tensors are coded sample by sample, and what devices report
// about the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "actzip/codec.hpp"
#include "actzip/memory.hpp"
#include "actzip/segment_plan.hpp"
#include "actzip/session.hpp"

namespace actzip::session {

/// Returns the segments in which `tensor` is coded by `spec`, with the bits of `spec` on average: its samples, if it
/// has them and they can be coded separately at little cost; otherwise one. docs/plan.md says when. Each sample gets at
/// least `least` bits.
Segments sample_segments(const CodecSpec& spec, const SavedTensor& tensor, Bits least);

/// What the device of a site reported about its samples. Not thread-safe: the state's mutex guards it.
class SampleSummaries {
 public:
  /// Returns where the next encoding writes its summary. The summary of an observed step survives until the next
  /// observed step, because devices run ahead of those who read.
  SegmentSummary* next(bool is_observed, const Stream& stream, Memory& memory);

  /// Returns the last summary that was written, as far as is known by now; nothing before the first one.
  [[nodiscard]] std::optional<SegmentSummary> last() const;
  /// Returns the summary of the last observed step.
  [[nodiscard]] std::optional<SegmentSummary> observed() const;

 private:
  enum class Slot : std::uint8_t { any, observed };
  static constexpr std::size_t kSlots = 2;
  [[nodiscard]] std::optional<SegmentSummary> read(Slot slot) const;

  Allocation memory_;
  Slot last_ = Slot::any;
};

/// What encode_samples() encodes by: segments with bits of their own, and where to write a summary of them.
struct SampleEncoding {
  CodecSpec spec;
  Segments segments;
  Bits least{1};
  SegmentSummary* summary = nullptr;
};
void encode_samples(const SampleEncoding& encoding, const SavedTensor& tensor, ByteSpan dst, Seed seed,
                    const Stream& stream, Memory& memory);

}  // namespace actzip::session
