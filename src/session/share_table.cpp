#include "session/share_table.hpp"

#include <algorithm>
#include <variant>

#include "actzip/registry.hpp"
#include "session/blob.hpp"

namespace actzip::session {

namespace {

bool is_mask(const Want& want) { return want.how == Keep::encoded && std::holds_alternative<Mask>(want.spec); }

/// A mask plane says which elements are not 0: where none is negative, those above 0.
bool has_plane_for(const CodecSpec& have, const Want& want) {
  const auto* rotated = std::get_if<Rotated>(&have);
  return rotated != nullptr && rotated->mask_plane && want.not_negative && want.spec == CodecSpec(Mask{});
}

}  // namespace

bool ShareKey::operator==(const ShareKey& other) const {
  return memory == other.memory && data == other.data && version == other.version && dtype == other.dtype &&
         stream == other.stream && order.elems == other.order.elems && order.rank == other.order.rank &&
         std::equal(order.sizes, order.sizes + order.rank, other.order.sizes) &&
         std::equal(order.strides, order.strides + order.rank, other.order.strides);
}

std::size_t ShareTable::Hash::operator()(const ShareKey& key) const noexcept {
  std::uint64_t hash = key.memory ^ (reinterpret_cast<std::uintptr_t>(key.data) << 7U);
  hash ^= (std::uint64_t{key.version} << 40U) ^ static_cast<std::uint64_t>(key.order.elems);
  return (hash * 0x9E3779B97F4A7C15ULL) >> 16U;
}

ShareKeys share_keys(const SavedTensor& tensor, const Stream& stream) {
  ShareKeys keys;
  if (tensor.identity.address != 0) {
    keys.storage = {.memory = tensor.identity.address,
                    .data = tensor.view.data,
                    .version = tensor.version,
                    .dtype = tensor.view.dtype,
                    .stream = stream.handle(),
                    .order = format::element_order(tensor.view.shape)};
    keys.storage_guard = tensor.identity.guard;
  }
  if (tensor.source.address != 0) {
    keys.source = keys.storage;
    keys.source.memory = tensor.source.address;
    keys.source.data = nullptr;
    keys.source_guard = tensor.source.guard;
  }
  return keys;
}

bool serves(const Want& have, const Want& want) {
  if (want.how == Keep::shape_only || have.how == Keep::as_is) return true;
  if (want.how == Keep::as_is || have.how != Keep::encoded) return false;
  if (have.spec == want.spec || has_plane_for(have.spec, want)) return true;
  if (is_mask(have) || is_mask(want)) return false;
  if (std::holds_alternative<Index>(have.spec) || std::holds_alternative<Index>(want.spec)) return false;
  return expected_error(have.spec) <= expected_error(want.spec);
}

void ShareTable::find_one(const ShareKey& key, const Want& want, Found& found) {
  if (key.memory == 0 || found.blob) return;
  const auto place = entries_.find(key);
  if (place == entries_.end()) return;
  for (const Entry& entry : place->second) {
    if (serves(entry.have, want)) {
      found.blob = entry.holder.lock();
      if (found.blob) return;
    } else if (is_mask(entry.have) && entry.have.not_negative) {
      found.mask_of = entry.site;
    }
  }
}

Found ShareTable::find(const ShareKeys& keys, const Want& want) {
  Found found;  // before the lock: a blob that dies here takes itself out of the table
  const std::lock_guard lock(mutex_);
  find_one(keys.storage, want, found);
  find_one(keys.source, want, found);
  return found;
}

void ShareTable::insert(const std::shared_ptr<Blob>& blob, const Want& have, Site& site) {
  const std::lock_guard lock(mutex_);
  for (const ShareKey* key : {&blob->keys.storage, &blob->keys.source}) {
    if (key->memory != 0) entries_[*key].push_back({blob.get(), blob, have, &site});
  }
}

void ShareTable::erase(const Blob& blob) {
  const std::lock_guard lock(mutex_);
  for (const ShareKey* key : {&blob.keys.storage, &blob.keys.source}) {
    const auto place = entries_.find(*key);
    if (key->memory == 0 || place == entries_.end()) continue;
    std::erase_if(place->second, [&](const Entry& entry) { return entry.blob == &blob; });
    if (place->second.empty()) entries_.erase(place);
  }
}

}  // namespace actzip::session
