// Which memory is kept already, and how faithfully.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "actzip/session.hpp"
#include "format/element_order.hpp"

namespace actzip::session {

struct Site;

/// Two tensors with equal keys hold the same elements in the same order.
struct ShareKey {
  std::uintptr_t memory = 0;   ///< of the storage, or of what it was cast from; 0: no key
  const void* data = nullptr;  ///< the first element; null in a key of the second kind
  std::uint32_t version = 0;
  DType dtype = DType::f32;
  const void* stream = nullptr;  ///< no waiting between streams for the sake of sharing
  format::ElementOrder order;

  bool operator==(const ShareKey& other) const;
};

struct ShareKeys {
  ShareKey storage;
  ShareKey source;
  std::shared_ptr<const void> storage_guard;
  std::shared_ptr<const void> source_guard;
};

ShareKeys share_keys(const SavedTensor& tensor, const Stream& stream);

/// What a saver asks for.
struct Want {
  Keep how;
  CodecSpec spec;
  bool not_negative = false;  ///< of the tensor: see Choice
};

/// Whether what is kept as `have` gives a saver at least what `want` would have given.
bool serves(const Want& have, const Want& want);

struct Found {
  std::shared_ptr<const Blob> blob;  ///< null if nothing kept serves
  Site* mask_of = nullptr;           ///< a ReLU's site that keeps the same memory as a mask alone
};

class ShareTable {
 public:
  Found find(const ShareKeys& keys, const Want& want);
  void insert(const std::shared_ptr<Blob>& blob, const Want& have, Site& site);
  void erase(const Blob& blob);

 private:
  struct Entry {
    const Blob* blob;
    std::weak_ptr<const Blob> holder;
    Want have;
    Site* site;
  };
  struct Hash {
    std::size_t operator()(const ShareKey& key) const noexcept;
  };
  void find_one(const ShareKey& key, const Want& want, Found& found);

  std::mutex mutex_;
  std::unordered_map<ShareKey, std::vector<Entry>, Hash> entries_;
};

}  // namespace actzip::session
