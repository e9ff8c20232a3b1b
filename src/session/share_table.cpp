#include "session/share_table.hpp"

#include <algorithm>
#include <variant>

#include "actzip/registry.hpp"
#include "format/element_order.hpp"
#include "session/blob.hpp"

namespace actzip::session {

namespace {

bool is_mask(const Want& want) { return want.how == Keep::encoded && std::holds_alternative<Mask>(want.spec); }

/// Whether the mask plane of `have` serves `want`. A plane tells which elements are not 0; if none is negative, these
/// are the elements above 0.
bool has_plane_for(const CodecSpec& have, const Want& want) {
  const auto* rotated = std::get_if<Rotated>(&have);
  return rotated != nullptr && rotated->mask_plane && want.not_negative && want.spec == CodecSpec(Mask{});
}

bool same_elements(const ShareKeys& a, const ShareKeys& b) {
  return a.step == b.step && a.version == b.version && a.dtype == b.dtype && a.stream == b.stream &&
         a.places == b.places;
}

bool same_storage(const ShareKeys& a, const ShareKeys& b) {
  return a.storage == b.storage && a.data == b.data && same_elements(a, b);
}

bool same_source(const ShareKeys& a, const ShareKeys& b) { return a.source == b.source && same_elements(a, b); }

ElementPlaces places_of(const Shape& shape) {
  const format::ElementOrder order = format::element_order(shape);
  ElementPlaces places{order.elems, {}};
  if (order.dense()) return places;
  places.extents.assign(order.sizes, order.sizes + order.rank);
  places.extents.insert(places.extents.end(), order.strides, order.strides + order.rank);
  return places;
}

std::uint64_t mix(std::uint64_t value) { return (value * 0x9E3779B97F4A7C15ULL) >> 16U; }

std::uint64_t storage_hash(const ShareKeys& keys) {
  return mix(keys.storage ^ (reinterpret_cast<std::uintptr_t>(keys.data) << 7U) ^
             static_cast<std::uint64_t>(keys.places.elems));
}

/// Odd factors usually keep the two kinds of keys apart.
std::uint64_t source_hash(const ShareKeys& keys) {
  return mix(3 * keys.source.id + 5 * static_cast<std::uint64_t>(keys.places.elems));
}

}  // namespace

ShareKeys share_keys(const SavedTensor& tensor, const Stream& stream, std::int64_t step) {
  ShareKeys keys;
  if (tensor.identity.address == 0) return keys;
  keys.step = step;
  keys.version = tensor.version;
  keys.dtype = tensor.view.dtype;
  keys.stream = stream.handle();
  keys.places = places_of(tensor.view.shape);
  keys.storage = tensor.identity.address;
  keys.storage_guard = tensor.identity.guard;
  keys.data = tensor.view.data;
  keys.source = tensor.source;
  return keys;
}

Want with_plane(Want want) {
  if (auto* rotated = std::get_if<Rotated>(&want.spec)) rotated->mask_plane = true;
  return want;
}

bool serves(const Want& have, const Want& want) {
  if (want.how == Keep::shape_only || want.how == Keep::recomputed || have.how == Keep::as_is) return true;
  if (want.how == Keep::as_is || have.how != Keep::encoded) return false;
  if (have.spec == want.spec || has_plane_for(have.spec, want)) return true;
  if (is_mask(have) || is_mask(want)) return false;
  const bool are_indices = std::holds_alternative<Index>(have.spec) && std::holds_alternative<Index>(want.spec);
  if (are_indices) return true;  // whatever their bounds: what was kept lay inside
  if (std::holds_alternative<Index>(have.spec) || std::holds_alternative<Index>(want.spec)) return false;
  return expected_error(have.spec) <= expected_error(want.spec);
}

void ShareTable::find_one(std::uint64_t hash, Matches matches, const ShareKeys& keys, const Want& want, Found& found) {
  const auto [begin, end] = blobs_.equal_range(hash);
  for (auto entry = begin; entry != end && !found.blob; ++entry) {
    Blob& blob = *entry->second;
    if (!matches(blob.keys, keys)) continue;
    if (serves(blob.have, want)) {
      found.blob = blob.weak_from_this().lock();
    } else {
      found.weaker = blob.site;
      found.weaker_want = blob.want;
    }
  }
}

Found ShareTable::find(const ShareKeys& keys, const Want& want) {
  Found found;  // declared before the lock: a blob that is freed here removes itself from the table
  const std::lock_guard lock(mutex_);
  if (keys.storage != 0) find_one(storage_hash(keys), same_storage, keys, want, found);
  if (keys.source.id != 0 && !found.blob) find_one(source_hash(keys), same_source, keys, want, found);
  return found;
}

void ShareTable::insert(Blob& blob) {
  const std::lock_guard lock(mutex_);
  if (blob.keys.storage != 0) blobs_.emplace(storage_hash(blob.keys), &blob);
  if (blob.keys.source.id != 0) blobs_.emplace(source_hash(blob.keys), &blob);
}

void ShareTable::erase_one(std::uint64_t hash, const Blob& blob) {
  const auto [begin, end] = blobs_.equal_range(hash);
  const auto entry = std::find_if(begin, end, [&](const auto& candidate) { return candidate.second == &blob; });
  if (entry != end) blobs_.erase(entry);
}

void ShareTable::erase(const Blob& blob) {
  const std::lock_guard lock(mutex_);
  if (blob.keys.storage != 0) erase_one(storage_hash(blob.keys), blob);
  if (blob.keys.source.id != 0) erase_one(source_hash(blob.keys), blob);
}

}  // namespace actzip::session
