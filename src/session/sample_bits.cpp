#include "session/sample_bits.hpp"

#include <cstring>
#include <variant>

#include "format/element_order.hpp"

namespace actzip::session {

namespace {

/// Shorter samples cost too many bytes besides their codes, and on CUDA time: a warp works on this many elements.
constexpr std::int64_t kShortest = 1024;

/// The most that tables and padding of samples may add to a tensor's bytes.
constexpr double kMostExtra = 1.05;

/// Whether dimension 0 is the outermost one in memory, and nothing lies between the elements.
bool has_outermost_batch(const Shape& shape) {
  if (shape.rank < 1 || shape.sizes[0] < 2 || shape.strides[0] == 0) return false;
  for (int d = 1; d < shape.rank; ++d) {
    if (shape.sizes[d] > 1 && (shape.strides[d] > shape.strides[0] || shape.strides[d] == 0)) return false;
  }
  return format::element_order(shape).dense();
}

/// Returns the number of samples in dimension 0. Rows of one sample lie together, since a batch of texts may arrive as
/// a batch of tokens.
std::int64_t samples_in(const SavedTensor& tensor) {
  const std::int64_t rows = tensor.view.shape.sizes[0];
  const std::int64_t known = tensor.samples.count;
  return known >= 2 && rows % known == 0 ? known : rows;
}

struct Widths {
  int bits = 0;
  int most = 0;  ///< 0: the codec has no bits for each segment
  bool has_plane = false;
};

Widths widths_of(const CodecSpec& spec) {
  if (const auto* rotated = std::get_if<Rotated>(&spec)) {
    return {rotated->bits.value, Rotated::kMostBits, rotated->mask_plane};
  }
  const auto* affine = std::get_if<Affine>(&spec);
  return affine != nullptr ? Widths{affine->bits.value, Affine::kMostBits} : Widths{};
}

}  // namespace

Segments sample_segments(const CodecSpec& spec, const SavedTensor& tensor, Bits least) {
  const Widths widths = widths_of(spec);
  const bool has_choice = widths.bits > least.value && widths.bits < widths.most;
  if (!has_choice || !has_outermost_batch(tensor.view.shape)) return {};
  const std::int64_t count = samples_in(tensor);
  const std::int64_t elems = unique_elems(tensor.view.shape);
  const std::int64_t length = elems / count;
  if (count > kMostPlannedSegments || length < kShortest) return {};
  if (widths.has_plane && length % 32 != 0) return {};  // the plane is also read as a single mask
  const Segments segments{count, count * widths.bits};
  const auto bytes = static_cast<double>(encoded_bytes(spec, tensor.view.dtype, elems, segments));
  const bool is_cheap = bytes <= kMostExtra * static_cast<double>(encoded_bytes(spec, tensor.view.dtype, elems));
  return is_cheap ? segments : Segments{};
}

SegmentSummary* SampleSummaries::next(bool is_observed, const Stream& stream, Memory& memory) {
  if (memory_.data == nullptr) memory_ = memory.allocate_visible(kSlots * sizeof(SegmentSummary), stream);
  last_ = is_observed ? Slot::observed : Slot::any;
  return reinterpret_cast<SegmentSummary*>(memory_.data) + static_cast<std::size_t>(last_);
}

std::optional<SegmentSummary> SampleSummaries::last() const { return read(last_); }

std::optional<SegmentSummary> SampleSummaries::observed() const { return read(Slot::observed); }

std::optional<SegmentSummary> SampleSummaries::read(Slot slot) const {
  if (memory_.data == nullptr) return std::nullopt;
  SegmentSummary summary;
  std::memcpy(&summary, memory_.data + static_cast<std::size_t>(slot) * sizeof summary, sizeof summary);
  return summary.most_bits > 0 ? std::optional(summary) : std::nullopt;
}

void encode_samples(const SampleEncoding& encoding, const SavedTensor& tensor, ByteSpan dst, Seed seed,
                    const Stream& stream, Memory& memory) {
  const auto count = static_cast<std::size_t>(encoding.segments.count);
  const std::size_t numbers = count * sizeof(float);
  const Allocation scratch = memory.allocate(numbers + count, stream);
  const Device device = stream.device();
  const ByteSpan weights(scratch.data, numbers, device);
  const ByteSpan table(scratch.data + numbers, count, device);
  const bool has_factors = tensor.samples.factors != nullptr && tensor.samples.count == encoding.segments.count;
  const ConstByteSpan factors =
      has_factors ? ConstByteSpan(reinterpret_cast<const std::byte*>(tensor.samples.factors), numbers, device)
                  : ConstByteSpan();
  weigh_segments(tensor.view, factors, weights, stream);
  plan_segments(encoding.spec, weights, encoding.segments, table, encoding.summary, stream, encoding.least);
  encode(encoding.spec, tensor.view, dst, seed, stream, encoding.segments, {}, table);
}

}  // namespace actzip::session
