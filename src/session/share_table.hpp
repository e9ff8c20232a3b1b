// Knows which memory is kept already, and how faithfully.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "actzip/session.hpp"

namespace actzip::session {

struct Site;

/// Where the elements of a tensor lie, relative to the first. Small if they lie side by side, as they usually do.
struct ElementPlaces {
  std::int64_t elems = 0;
  std::vector<std::int64_t> extents;  ///< sizes and strides in memory order, if there are gaps
  bool operator==(const ElementPlaces&) const = default;
};

/// The keys by which the memory of a tensor is found. Two tensors hold the same elements in the same order if they
/// agree in the first group of members and also in storage and first element, or in the source.
struct ShareKeys {
  std::int64_t step = 0;  ///< between steps nobody reports what is written to
  std::uint64_t version = 0;
  DType dtype = DType::f32;
  const void* stream = nullptr;  ///< streams do not wait for each other to share memory
  ElementPlaces places;

  std::uintptr_t storage = 0;  ///< 0: no key
  const void* data = nullptr;  ///< address of the first element
  CastSource source;           ///< no key if it has no number
  Guard storage_guard;
};

ShareKeys share_keys(const SavedTensor& tensor, const Stream& stream, std::int64_t step);

/// Whether something kept as `have` gives a saver at least what `want` would have given.
bool serves(const Want& have, const Want& want);

/// Returns `want`, for values after a ReLU, with the mask plane that also serves the ReLU.
Want with_plane(Want want);

struct Found {
  std::shared_ptr<const Blob> blob;  ///< null if nothing that is kept serves
  Site* weaker = nullptr;            ///< otherwise a site that keeps the same memory, but not well enough
  Want weaker_want{};                ///< what that site itself needs
};

/// Finds blobs by the hashes of their keys; everything else is in the blobs. Thread-safe.
class ShareTable {
 public:
  Found find(const ShareKeys& keys, const Want& want);
  void insert(Blob& blob);
  void erase(const Blob& blob);

 private:
  using Matches = bool (*)(const ShareKeys& a, const ShareKeys& b);
  void find_one(std::uint64_t hash, Matches matches, const ShareKeys& keys, const Want& want, Found& found);
  void erase_one(std::uint64_t hash, const Blob& blob);

  std::mutex mutex_;
  std::unordered_multimap<std::uint64_t, Blob*> blobs_;
};

}  // namespace actzip::session
