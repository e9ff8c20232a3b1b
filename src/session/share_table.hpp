// Which memory is kept already, and how faithfully.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "actzip/session.hpp"

namespace actzip::session {

struct Site;

/// Where the elements of a tensor lie, from the first on. Small where they lie side by side, as they mostly do.
struct ElementPlaces {
  std::int64_t elems = 0;
  std::vector<std::int64_t> extents;  ///< sizes and strides in memory order, if there are gaps
  bool operator==(const ElementPlaces&) const = default;
};

/// What the memory of a tensor is found by. Two tensors that agree in the first part, and in the storage and first
/// element or in the source, hold the same elements in the same order.
struct ShareKeys {
  std::int64_t step = 0;  ///< between steps nobody says what is written to
  std::uint64_t version = 0;
  DType dtype = DType::f32;
  const void* stream = nullptr;  ///< no waiting between streams for the sake of sharing
  ElementPlaces places;

  std::uintptr_t storage = 0;  ///< 0: no key
  const void* data = nullptr;  ///< the first element
  CastSource source;           ///< without a number: no key
  Guard storage_guard;
};

ShareKeys share_keys(const SavedTensor& tensor, const Stream& stream, std::int64_t step);

/// What a saver asks for.
struct Want {
  Keep how;
  CodecSpec spec;
  bool not_negative = false;  ///< of the tensor: see Choice
};

/// Whether what is kept as `have` gives a saver at least what `want` would have given.
bool serves(const Want& have, const Want& want);

/// Values after a ReLU, with the mask plane that serves the ReLU too.
Want with_plane(Want want);

struct Found {
  std::shared_ptr<const Blob> blob;  ///< null if nothing kept serves
  Site* weaker = nullptr;            ///< else: a site that keeps the same memory, but not what is asked for
  Want weaker_want{};                ///< what that site itself asks for
};

/// Knows blobs by the hashes of their keys; the rest lies in the blobs.
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
