// Bits for the samples of a tensor: which tensors are coded sample by sample, and what devices say came of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "actzip/codec.hpp"
#include "actzip/memory.hpp"
#include "actzip/segment_plan.hpp"
#include "actzip/session.hpp"

namespace actzip::session {

/// The segments in which `tensor` is coded by `spec`, with its average bits: its samples, if it has them and they can
/// be told apart at little cost, otherwise one. docs/plan.md says when. `least` is for each sample.
Segments sample_segments(const CodecSpec& spec, const SavedTensor& tensor, Bits least);

/// What the device of a site wrote about its samples. Not thread-safe: the state's mutex guards it.
class SampleSummaries {
 public:
  /// Where the next encoding writes. That of an observed step stays until the next one, since devices run ahead of
  /// those who read.
  SegmentSummary* next(bool is_observed, const Stream& stream, Memory& memory);

  /// The last one that was written as far as is known by now; none before any.
  [[nodiscard]] std::optional<SegmentSummary> last() const;
  /// That of the last observed step.
  [[nodiscard]] std::optional<SegmentSummary> observed() const;

 private:
  enum class Slot : std::uint8_t { any, observed };
  static constexpr std::size_t kSlots = 2;
  [[nodiscard]] std::optional<SegmentSummary> read(Slot slot) const;

  Allocation memory_;
  Slot last_ = Slot::any;
};

/// encode() with bits for each sample, and a summary of them.
struct SampleEncoding {
  CodecSpec spec;
  Segments segments;
  Bits least{1};
  SegmentSummary* summary = nullptr;
};
void encode_samples(const SampleEncoding& encoding, const SavedTensor& tensor, ByteSpan dst, Seed seed,
                    const Stream& stream, Memory& memory);

}  // namespace actzip::session
