// What a session and its blobs share. Blobs hold it, so it lives as long as anything that was kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "actzip/session.hpp"
#include "session/adaptation.hpp"
#include "session/sample_bits.hpp"
#include "session/share_table.hpp"

namespace actzip::session {

/// What was done with one saved tensor. Texts are literals: a save makes none.
struct Outcome {
  SiteKind kind = SiteKind::as_is;
  CodecSpec spec = Copy{};               ///< if encoded
  const std::string* kept_by = nullptr;  ///< the name of the site that keeps it, or what it is derived from
  std::size_t before = 0;
  std::size_t after = 0;
  std::string_view reason;
  Cause cause = Cause::none;  ///< if as_is
  std::int64_t samples = 0;   ///< with bits of their own
};

/// What somebody saw who looked at what few bits of a site do to a gradient.
enum class Look : std::uint8_t { none, fine, spoilt };

/// Who holds what a step was given until its backward, as far as that was seen.
enum class Holder : std::uint8_t { unknown, caller, nobody };

/// Names, use and row never change once an adapter has asked for it; the rest is guarded by the state's mutex.
struct Site {
  std::string module;
  std::string op;
  std::string slot;
  int ordinal = 0;
  std::string name;
  SiteId id;
  Use use = Use::unknown;
  const PolicyRow* row = nullptr;  ///< null in a site that was loaded, until its adapter asks for it

  std::atomic<Look> look = Look::none;
  std::atomic<StepPart> part = StepPart::unknown;
  std::atomic<Holder> holder = Holder::unknown;

  std::optional<Want> asked;    ///< learned: a later saver of the same memory asks for more than this site does
  std::optional<Want> planned;  ///< instead of what the policy says
  std::optional<double> sensitivity;
  std::int64_t step = -1;  ///< the last in which it was used
  std::int64_t saves = 0;
  Shape shape;  ///< of the last tensor, as are the following
  DType dtype = DType::f32;
  bool can_plan = false;   ///< a plan may choose how its values are kept
  bool has_plane = false;  ///< it asked for a mask, and kept values with a mask plane for others
  SampleSummaries summaries;
  bool is_freed = false;   ///< what it kept in its last step was freed before backward
  Site* keeper = nullptr;  ///< the site that keeps its memory, perhaps itself; null if nothing is kept
  Outcome last;
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

/// The words that `index` raises when a value lies outside its bound, one for each site and device.
class OverflowFlags {
 public:
  ByteSpan flag(const Site& site, const Stream& stream, Memory& memory);

  /// Throws Error(index_out_of_bound) for a flag that was raised since the last call, and lowers it. Waits for nothing.
  void check();

  /// Whether any was ever raised, as far as is known by now.
  bool raised();

 private:
  struct Flag {
    const Site* site;
    Device device;
    Allocation word;
  };
  std::mutex mutex_;
  std::vector<Flag> flags_;
  bool raised_ = false;
};

class State : public std::enable_shared_from_this<State> {
 public:
  explicit State(const SessionOptions& options);

  void begin_step();
  SiteId site(const SiteKey& key);
  const std::string& site_name(SiteId site);
  SiteId site_named(const std::string& name);
  [[nodiscard]] bool is_guarded() const;
  void note_look(SiteId site, bool spoils_gradient);
  bool was_looked_at(SiteId site);
  void note_part(SiteId site, StepPart part) { site_at(site).part = part; }
  StepPart part_of(SiteId site) { return site_at(site).part; }
  bool wants_observation();
  bool wants_measurement();
  void note_observed();
  void skip_observation();
  bool learn(const Observation& observation);
  void set_trial(std::optional<Trial> trial);
  [[nodiscard]] bool is_trial() const { return has_trial_; }
  void set_measured_variance(double variance);
  bool adds_much();
  [[nodiscard]] bool adapts() const { return adaptation_.is_on(); }
  [[nodiscard]] std::int64_t saves() const { return saves_; }
  Kept keep(SiteId site, const SavedTensor& tensor, const Stream& stream, Memory& memory, const Kept* source);
  actzip::Decision decide_for_all(const SavedTensor& tensor, std::span<const SavedFor> savers);
  void note(SiteId site, const SavedTensor& tensor, const KeptElsewhere& kept);
  /// Backward asks for something of this step.
  void note_asked() { is_asked_ = true; }
  void note_freed(const Blob& blob);
  void note_holder(const Blob& blob, bool is_held);
  Report report();
  std::string save();
  void load(std::string_view text);

  OverflowFlags overflow;
  ShareTable shared;
  DecodeCache decoded;
  std::atomic<std::size_t> live_bytes{0};

 private:
  [[nodiscard]] Site& site_at(SiteId id);
  SiteId make_site(const SiteKey& key);
  void learn_use(Site& site, const SiteKey& key) const;
  /// What is done with one tensor, and whether a plan may say so.
  struct Decision {
    Choice choice;
    bool can_plan = false;
  };
  [[nodiscard]] Decision decide(const Site& site, const SavedTensor& tensor);
  [[nodiscard]] Choice by_policy(const Site& site, const SavedTensor& tensor) const;
  [[nodiscard]] bool is_callers(const Site& site, const SavedTensor& tensor) const;
  [[nodiscard]] bool is_small(const SavedTensor& tensor) const;
  [[nodiscard]] Cause cause_of(const Site& site, const SavedTensor& tensor) const;
  /// Where one tensor goes, and what it can be computed from.
  struct Target {
    const Stream& stream;
    Memory& memory;
    const Blob* source;  ///< null if there is nothing
  };
  Kept keep_memory(Site& site, const SavedTensor& tensor, const Choice& choice, const Target& target, Outcome& outcome);
  Kept let_go(Site& site, ShareKeys keys, const Want& want, Outcome& outcome);
  static Kept share(const Blob& blob, const Choice& choice, Outcome& outcome);
  /// What a site asks for, what is kept because others ask for more, and by what others find it.
  struct Storing {
    Want want;
    Want have;
    ShareKeys keys;
  };
  Kept store(Site& site, const SavedTensor& tensor, Storing storing, const Target& target, Outcome& outcome);
  Kept derived_from(const Blob& source, Site& site, ShareKeys keys, const Want& want);
  std::shared_ptr<const Blob> mark_of(Site& site, ShareKeys keys, const Want& want);
  std::shared_ptr<Blob> empty_blob(Site& site);
  void teach(const Blob& source, const Want& want);
  static void ask(Site& site, const Want& own, const Want& want);
  Want to_store(const Site& site, const Want& want, const Found& found);
  [[nodiscard]] Segments segments_for(const Site& site, const SavedTensor& tensor, const CodecSpec& spec);
  std::shared_ptr<Blob> encode_blob(Site& site, const SavedTensor& tensor, const CodecSpec& spec, Segments segments,
                                    const Stream& stream, Memory& memory);
  SegmentSummary* next_summary(Site& site, const Stream& stream, Memory& memory);
  void record(Site& site, const SavedTensor& tensor, const Outcome& outcome, const Kept& kept, bool can_plan);
  [[nodiscard]] bool is_dropped(const Site& site) const;
  void add_variance(const Site& keeper, SiteReport& row) const;
  [[nodiscard]] bool is_tried(const Site& site) const;
  Seed next_seed(const Site& site);
  [[nodiscard]] Seed trial_seed(const Site& site) const;

  const std::string preset_;  ///< as it was asked for
  const SessionOptions options_;
  const Policy policy_;
  const bool by_sample_;
  std::atomic<std::uint64_t> encoded_count_{0};
  std::atomic<std::int64_t> saves_{0};
  std::atomic<std::int64_t> step_{0};
  std::atomic<bool> is_asked_{false};   ///< this step has begun its backward
  std::atomic<bool> has_trial_{false};  ///< so that a seed takes no lock

  std::mutex mutex_;  ///< of everything below
  Adaptation adaptation_;
  bool is_observed_ = false;  ///< this step
  std::optional<Trial> trial_;
  std::deque<Site> sites_;  ///< a deque: they stay where they are
  std::unordered_map<std::string, SiteId> site_by_name_;
  std::vector<Site*> order_;  ///< of the last step, in the order of first saves
};

}  // namespace actzip::session
