// What a session and its blobs share. Blobs hold it, so it lives as long as anything that was kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actzip/session.hpp"
#include "session/share_table.hpp"

namespace actzip::session {

struct Site {
  std::string module;
  std::string op;
  std::string slot;
  int ordinal = 0;
  std::string name;
  const PolicyRow* row = nullptr;
  std::optional<CodecSpec> values;  ///< learned: somebody else asks for the values behind this site's mask
  std::int64_t step = -1;           ///< the last in which it was used
  std::int64_t saves = 0;
  SiteReport last;                  ///< what changes from save to save; names are filled in when it is asked for
};

/// What was restored last, so that several savers of one tensor decode it once.
class DecodeCache {
 public:
  struct Key {
    const Blob* blob = nullptr;
    bool as_mask = false;
    const void* stream = nullptr;
    bool operator==(const Key&) const = default;
  };
  std::optional<Allocation> find(const Key& key);
  void put(const Key& key, const Allocation& values);
  void forget(const Blob& blob);

 private:
  std::mutex mutex_;
  Key key_;
  Allocation values_;
};

/// The words that `index` raises when a value lies outside its bound, one for each device.
class OverflowWords {
 public:
  ByteSpan word(const Stream& stream, Memory& memory);
  /// Whether any was raised; waits for the devices.
  bool raised();

 private:
  struct Word {
    Device device;
    Allocation bytes;
    Memory* memory;
  };
  std::mutex mutex_;
  std::vector<Word> words_;
};

class State : public std::enable_shared_from_this<State> {
 public:
  explicit State(const SessionOptions& options);

  void begin_step();
  SiteId site(const SiteKey& key);
  const std::string& site_name(SiteId site) const;
  Kept keep(SiteId site, const SavedTensor& tensor, const Stream& stream, Memory& memory);
  Report report();

  ShareTable shared;
  DecodeCache decoded;
  std::atomic<std::size_t> live_bytes{0};

 private:
  struct Outcome;

  Choice decide(SiteId site, const SavedTensor& tensor) const;
  Kept keep_encoded(SiteId site, const SavedTensor& tensor, const Choice& choice, const Stream& stream,
                    Memory& memory, Outcome& outcome);
  CodecSpec stored_spec(SiteId site, const Choice& choice, const Found& found);
  std::shared_ptr<Blob> encode_blob(SiteId site, const SavedTensor& tensor, const CodecSpec& spec,
                                    const Stream& stream, Memory& memory);
  void record(SiteId site, const SavedTensor& tensor, const Outcome& outcome);
  Seed next_seed();

  const SessionOptions options_;
  const Policy policy_;
  OverflowWords overflow_;
  std::atomic<std::uint64_t> encoded_count_{0};

  mutable std::mutex mutex_;  ///< of everything below
  std::int64_t step_ = 0;
  std::deque<Site> sites_;    ///< a deque: names and rows stay where they are
  std::unordered_map<std::string, SiteId> site_by_name_;
  std::vector<SiteId> order_;  ///< of the last step, in the order of first saves
};

}  // namespace actzip::session
