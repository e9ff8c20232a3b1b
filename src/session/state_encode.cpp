// How a session encodes one tensor: which segments, which seed, whose bytes.
#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <variant>

#include "actzip/codec.hpp"
#include "actzip/error.hpp"
#include "session/blob.hpp"
#include "session/state.hpp"
#include "store/store.hpp"

namespace actzip::session {

namespace {

/// Calls `function` and adds the site's name to its errors.
template <class Function>
void with_name(const Site& site, Function function) {
  try {
    function();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", site.name, error.what()));
  }
}

}  // namespace

/// Codecs that the user requested have no segments, and neither does noise that is tried.
Segments State::segments_for(const Site& site, const SavedTensor& tensor, const CodecSpec& spec) {
  const PolicyRow& row = effective_row(*site.row, tensor.facts);
  if (row.treatment == Treatment::ruled) return {};
  if (!by_sample_ && policy_.is_uniform()) return {};
  if (!by_sample_) return row_segments(row, spec, tensor.view.shape, tensor.facts.row_elems);
  if (has_trial_) {
    const std::lock_guard lock(mutex_);
    if (is_tried(site)) return {};
  }
  return sample_segments(spec, tensor, least_bits(row));
}

SegmentSummary* State::next_summary(Site& site, const Stream& stream, Memory& memory) {
  const std::lock_guard lock(mutex_);
  return site.summaries.next(is_observed_, stream, memory);
}

/// A blob with room for an encoding, which fill() writes.
std::shared_ptr<Blob> State::blob_with_room(const Site& site, const SavedTensor& tensor, const CodecSpec& spec,
                                            Segments segments, Place place, const Target& target) {
  const Stream& stream = target.stream;
  Blob::Contents contents{.how = Keep::encoded,
                          .spec = spec,
                          .dtype = tensor.view.dtype,
                          .elems = unique_elems(tensor.view.shape),
                          .seed = std::holds_alternative<Copy>(spec) ? Seed(0) : next_seed(site),
                          .segments = segments,
                          .stream = stream,
                          .bytes = {},
                          .encoded = {},
                          .site = &site.name};
  const std::size_t size = encoded_bytes(spec, contents.dtype, contents.elems, segments);
  if (place.tier == Tier::host) {
    contents.store = offload_;
  } else {
    contents.held = std::move(place.held);
  }
  with_name(site,
            [&] { contents.bytes = contents.where().reserve(size, stream, target.memory, std::move(place.held)); });
  return std::make_shared<Blob>(shared_from_this(), std::move(contents));
}

void State::fill(Blob& blob, Site& site, const SavedTensor& tensor, const Target& target, Written written) {
  with_name(site, [&] {
    if (written == Written::nothing) encode(blob, site, tensor, target);
    blob.put_away(target.memory, {&site.left_step, step_});
  });
  const bool has_indices = std::holds_alternative<Index>(blob.contents().spec);
  if (has_indices && target.stream.device().kind == DeviceKind::cpu) overflow.check();
}

void State::encode(const Blob& blob, Site& site, const SavedTensor& tensor, const Target& target) {
  const Stream& stream = target.stream;
  Memory& memory = target.memory;
  const Blob::Contents& contents = blob.contents();
  if (contents.segments.has_own_bits()) {
    SegmentSummary* summary = next_summary(site, stream, memory);
    const Bits least = least_bits(effective_row(*site.row, tensor.facts));
    encode_samples({contents.spec, contents.segments, least, summary}, tensor, blob.bytes(), contents.seed, stream,
                   memory);
    return;
  }
  const bool needs_flag = workspace_bytes(contents.spec, contents.dtype, contents.elems) > 0;
  const ByteSpan flag = needs_flag ? overflow.flag(site, stream, memory) : ByteSpan{};
  actzip::encode(contents.spec, tensor.view, blob.bytes(), contents.seed, stream, contents.segments, flag);
}

/// Seeds are consecutive numbers, spread over all bits, so that sessions with neighbouring seeds share no signs. In a
/// trial they depend on the site, so that everything but what is tried is repeated.
Seed State::next_seed(const Site& site) {
  const std::uint64_t start = seed_start(options_.seed);
  if (has_trial_) {
    const std::lock_guard lock(mutex_);
    if (trial_) {  // the trial may have ended since
      const std::uint64_t seed = spread_seed(trial_->seed * kSeedStep + (is_tried(site) ? 1 : 0));
      return Seed(spread_seed(start + seed + (site.id.value + 1) * kSeedStep));
    }
  }
  return Seed(spread_seed(start + (encoded_count_++ + 1) * kSeedStep));
}

/// A seed by step and site that no encoding uses: encoding something again with its own seed adds no noise.
Seed State::trial_seed(const Site& site) const {
  constexpr std::uint64_t kNoise = 0x6E6F697365ULL;
  return Seed(spread_seed(spread_seed(spread_seed(options_.seed ^ kNoise) + static_cast<std::uint64_t>(step_)) +
                          site.id.value));
}

}  // namespace actzip::session
