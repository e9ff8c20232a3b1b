#include "session/blob.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <variant>

#include "actzip/codec.hpp"
#include "actzip/registry.hpp"
#include "format/geometry.hpp"
#include "session/state.hpp"
#include "store/store.hpp"

namespace actzip {

namespace {

/// The mask plane of a rotated blob: the same bytes that `mask` would have written.
ConstByteSpan mask_plane(const Blob::Contents& contents, const Allocation& bytes) {
  const auto& spec = std::get<Rotated>(contents.spec);
  const auto sections = format::sections(spec, format::geometry(spec, contents.elems, contents.segments),
                                         contents.dtype, contents.segments.total_bits);
  const auto start = static_cast<std::size_t>(sections.mask);
  return {bytes.data + start, bytes.size - start, contents.stream.device()};
}

}  // namespace

Blob::Blob(std::shared_ptr<session::State> state, Contents contents)
    : state_(std::move(state)), contents_(std::move(contents)) {
  state_->live_bytes += contents_.bytes.size;
}

void Blob::put_away(Memory& memory, const store::LeaveNote& note) {
  contents_.bytes = contents_.where().put_away(std::move(contents_.bytes), contents_.stream, memory, note);
  if (std::holds_alternative<Index>(contents_.spec)) contents_.encoded = memory.point_in(contents_.stream);
}

Blob::~Blob() {
  // The site may have kept another blob since.
  if (kept_at >= 0.0 && site->kept_at == kept_at) site->freed_at = state_->now();
  state_->shared.erase(*this);
  state_->decoded.forget(*this);
  state_->note_freed(*this);
  state_->live_bytes -= contents_.bytes.size;
}

void note_asked(const Kept& kept) {
  if (kept.blob) kept.blob->state().note_asked();
}

void note_holder(const Kept& kept, bool is_held) {
  if (kept.blob) kept.blob->state().note_holder(*kept.blob, is_held);
}

Encoding encoding_of(const Kept& kept, const Stream& stream, Memory& memory) {
  note_asked(kept);
  kept.blob->state().check_budget();
  const Blob::Contents& contents = kept.blob->contents();
  if (contents.is_dropped) {
    throw Error(ErrorCode::budget_too_small,
                fmt::format("{}: nothing was kept of it, because its step passed the budget", *kept.site));
  }
  if (!contents.store) kept.blob->state().foresee(stream, memory);
  Allocation bytes = contents.where().fetch(contents.bytes, contents.stream, stream, memory);
  if (kept.as_mask) return {Mask{}, mask_plane(contents, bytes), contents.seed, Segments{}, bytes};
  return {contents.spec, {bytes.data, bytes.size, stream.device()}, contents.seed, contents.segments, bytes};
}

bool is_lossy(const Kept& kept) {
  return kept.how == Keep::encoded && !kept.as_mask && !traits(kept.blob->contents().spec).exact;
}

std::optional<IndexCheck> index_check(const Kept& kept) {
  if (!kept.blob || !kept.blob->contents().encoded) return std::nullopt;
  return IndexCheck(kept.blob->state().shared_from_this(), kept.blob->contents().encoded);
}

void IndexCheck::finish(Memory& memory) const {
  memory.wait_for(encoded_);
  state_->overflow.check();
}

Allocation restore(const Kept& kept, const Stream& stream, Memory& memory) {
  const Blob::Contents& contents = kept.blob->contents();
  session::DecodeCache& cache = kept.blob->state().decoded;
  note_asked(kept);
  if (std::holds_alternative<Index>(contents.spec)) kept.blob->state().overflow.check();
  const session::DecodeCache::Key key{kept.blob.get(), kept.as_mask, stream.handle()};
  if (auto values = cache.find(key); values && memory.untouched(*values)) return *values;

  const Encoding encoded = encoding_of(kept, stream, memory);
  Allocation values = memory.allocate(static_cast<std::size_t>(contents.elems) * dtype_bytes(contents.dtype), stream);
  Shape flat;
  flat.rank = 1;
  flat.sizes[0] = contents.elems;
  flat.strides[0] = 1;
  try {
    decode(encoded.spec, encoded.bytes, {values.data, contents.dtype, flat, stream.device()}, encoded.seed, stream,
           encoded.segments);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", *kept.site, error.what()));
  }
  // A mask is restored once, usually between two uses of the same values, so it must not replace them.
  if (!std::holds_alternative<Mask>(encoded.spec)) cache.put(key, values);
  return values;
}

}  // namespace actzip
