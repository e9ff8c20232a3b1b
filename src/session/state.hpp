// The state that a session and its blobs share. Blobs hold it, so it lives as long as anything that was kept.
#pragma once

#include <atomic>
#include <chrono>
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

#include "actzip/budget.hpp"
#include "actzip/error.hpp"
#include "actzip/session.hpp"
#include "session/adaptation.hpp"
#include "session/blob.hpp"
#include "session/sample_bits.hpp"
#include "session/share_table.hpp"
#include "store/held_memory.hpp"
#include "store/store.hpp"

namespace actzip::session {

using store::HeldMemory;

/// What was done with one saved tensor. All texts are literals, so a save allocates none.
struct Outcome {
  SiteKind kind = SiteKind::as_is;
  CodecSpec spec = Copy{};               ///< if encoded
  const std::string* kept_by = nullptr;  ///< name of the site that keeps it, or from which it is derived
  std::size_t before = 0;
  std::size_t after = 0;
  std::string_view reason;
  Cause cause = Cause::none;  ///< if as_is
  std::int64_t samples = 0;   ///< samples that have bits of their own
};

/// What a check found about how compressing a site affects a gradient.
enum class Look : std::uint8_t { none, fine, noisy, spoilt };

/// Who holds an input of the step until its backward, as far as that was seen.
enum class Holder : std::uint8_t { unknown, caller, nobody };

/// A site. Names, use and row never change once an adapter has asked for it; the state's mutex guards the rest.
struct Site {
  std::string module;
  std::string op;
  std::string slot;
  int ordinal = 0;
  std::string name;
  SiteId id;
  Use use = Use::unknown;
  const PolicyRow* row = nullptr;  ///< in a loaded site the row of Use::unknown, until its adapter names the use

  /// When its memory was kept and freed, in seconds of State::now(). If freed_at is less than kept_at, it is not freed
  /// yet.
  std::atomic<double> kept_at = 0.0;
  std::atomic<double> freed_at = -1.0;
  std::atomic<std::int64_t> left_step = -1;  ///< the last step in which its bytes left their device

  std::atomic<Look> look = Look::none;
  std::atomic<std::int64_t> look_step = 0;  ///< of the last check
  std::atomic<StepPart> part = StepPart::unknown;
  std::atomic<Holder> holder = Holder::unknown;

  std::optional<Want> asked;        ///< learned: a later saver of the same memory needs more than this site
  std::optional<Want> planned;      ///< replaces what the policy says
  CodecSpec usual = Copy{};         ///< what the policy chose for the last tensor
  std::optional<CodecSpec> raised;  ///< learned, if noisy: fewer bits make much of a gradient noise
  std::optional<double> sensitivity;
  Bits least_bits{1};           ///< learned: fewer bits spoil a gradient
  double planned_behind = 0.0;  ///< bytes that the rest of the step keeps, according to the plan and the step before
  double least_behind = 0.0;    ///< the same with the fewest bits
  int run = 0;                  ///< the module of which it was that ran again in this step; 0: it did not
  double share_at_once = 1.0;   ///< if it did: what of all such sites is held at once
  double held_at = 0.0;         ///< bytes held when it had saved, in the last step that used it
  std::int64_t step = -1;       ///< the last step in which it was used
  std::int64_t saves = 0;
  Shape shape;  ///< of the last tensor, as are the members down to table_error
  DType dtype = DType::f32;
  std::int64_t row_elems = 0;
  const PolicyRow* last_row = nullptr;  ///< `row`, or what replaces it: see effective_row()
  bool can_plan = false;                ///< a plan may choose how its values are kept
  double table_error = 0.0;             ///< error of the table's choice, if a plan may choose
  bool has_plane = false;               ///< it needs a mask, and kept values with a mask plane for other sites
  SampleSummaries summaries;
  bool is_freed = false;   ///< what it kept in its last step was freed before backward
  Site* keeper = nullptr;  ///< the site that keeps its memory, possibly itself; null if nothing is kept
  Outcome last;
};

/// How to keep one tensor of a site, and whether a plan may decide that.
struct SiteChoice : Choice {
  Cause cause = Cause::policy;  ///< if as is
  bool can_plan = false;
  double table_error = 0.0;  ///< error of the table's choice, if a plan may choose
  CodecSpec usual = Copy{};  ///< the policy's choice
};

/// The session's decision about one saved tensor before it is kept. Nothing else refers to it yet.
struct Reserved {
  Site* site = nullptr;
  SiteChoice choice;
  Outcome outcome = {};
  Kept kept = {};
  /// For the table of shares: what is kept of the tensor, or the mark. Null if neither is new.
  std::shared_ptr<Blob> made = {};
  std::size_t over_budget = 0;  ///< bytes for which a budget had no room

  [[nodiscard]] bool wants_bytes() const { return made && made->wants_bytes(); }
};

/// The last restored tensor, so that several savers of one tensor decode it only once.
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

/// The flag words that the codec `index` sets when a value lies outside its bound, one for each site and device.
class OverflowFlags {
 public:
  ByteSpan flag(const Site& site, const Stream& stream, Memory& memory);

  /// Throws Error(index_out_of_bound) if a flag was raised since the last call, and lowers that flag. Does not wait for
  /// a device.
  void check();

  /// Whether any flag was ever raised, as far as is known by now.
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
  bool wants_look(SiteId site);
  [[nodiscard]] std::int64_t look_round() const;
  Remedy note_look(SiteId site, double noise);
  bool is_settled(SiteId site);
  std::shared_ptr<void> hold_beside(SiteId site, std::size_t bytes);
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
  Reservation reserve(SiteId site, const SavedTensor& tensor, const Stream& stream, Memory& memory);
  Kept keep(Reservation reservation, Written written);
  Decision decide(const SavedTensor& tensor, std::span<const SavedFor> savers);
  void note(SiteId site, const SavedTensor& tensor, const KeptElsewhere& kept);
  double note_made(SiteId site);
  void note_released(SiteId site, double kept_at);
  /// Backward has started to restore tensors of this step.
  void note_asked() { is_asked_ = true; }
  void note_freed(const Blob& blob);
  void note_holder(const Blob& blob, bool is_held);
  std::vector<SiteBytes> site_bytes();
  void resume_step();
  void note_counted(SiteId site);
  void set_runs_again(bool any, bool changes);
  Report report();
  std::string take_notice();
  /// Backward is reading on `reader` something that was not offloaded; the store may start to fetch what was.
  void foresee(const Stream& reader, Memory& memory);
  std::string save();
  void load(std::string_view text);

  OverflowFlags overflow;
  ShareTable shared;
  DecodeCache decoded;
  std::atomic<std::size_t> live_bytes{0};
  /// Bytes held on the device, including what is kept exactly; counted under a budget only.
  const std::shared_ptr<HeldMemory> held = std::make_shared<HeldMemory>();

  /// Seconds since the session began.
  [[nodiscard]] double now() const;

  /// Throws Error(budget_too_small) if something of this step was dropped because it passed the budget.
  void check_budget();

 private:
  [[nodiscard]] Site& site_at(SiteId id);
  SiteId make_site(const SiteKey& key);
  void learn_use(Site& site, const SiteKey& key) const;
  [[nodiscard]] SiteChoice choose(const Site& site, const SavedTensor& tensor);
  [[nodiscard]] SiteChoice by_policy(const Site& site, const SavedTensor& tensor) const;
  [[nodiscard]] bool is_callers(const Site& site, const SavedTensor& tensor) const;
  [[nodiscard]] bool is_small(const SavedTensor& tensor) const;
  /// Where one tensor goes, what it can be computed from, and who writes its encoding.
  struct Target {
    const Stream& stream;
    Memory& memory;
    const Blob* source = nullptr;  ///< null if there is none
    bool by_saver = false;         ///< the saver may write the encoding, in one pass with its own work
  };
  Reserved reserve(Site& site, const SavedTensor& tensor, const Target& target);
  void reserve_memory(const SavedTensor& tensor, const Target& target, Reserved& reserved);
  Kept keep(Reserved reserved, const SavedTensor& tensor, const Target& target, Written written);
  void put_in_table(const Reserved& reserved, Written written);
  void let_go(ShareKeys keys, const Want& want, Reserved& reserved);
  static void share(const Blob& blob, Reserved& reserved);
  /// What a site needs, what is kept because other sites need more, and the keys by which others find it.
  struct Storing {
    Want want;
    Want have;
    ShareKeys keys;
  };
  void store(const SavedTensor& tensor, Storing storing, const Target& target, Reserved& reserved);
  void derive(const Blob& source, ShareKeys keys, const Want& want, Reserved& reserved);
  void mark(ShareKeys keys, const Want& want, Reserved& reserved);
  void teach(const Blob& source, const Want& want);
  static void ask(Site& site, const Want& own, const Want& want);
  Want to_store(const Site& site, const Want& want, const Found& found);
  [[nodiscard]] Segments segments_for(const Site& site, const SavedTensor& tensor, const CodecSpec& spec);
  /// Where bytes go: to their device, counted in a budget; to host memory; or nowhere, if they do not fit into the
  /// budget.
  enum class Tier : std::uint8_t { device, host, nowhere };
  struct Place {
    Tier tier = Tier::device;
    HeldMemory::Part held = {};
  };
  Place place_for(const Site& site, const Outcome& outcome, const Target& target);
  [[nodiscard]] bool fits_with_rest(const Site& site, std::size_t bytes);
  [[nodiscard]] bool raise_share(std::size_t before);
  [[nodiscard]] HeldMemory::Part have_room(std::size_t bytes, std::size_t before, const Target& target);
  [[nodiscard]] double behind(const Site& site);
  void note_over_budget(std::size_t bytes);
  std::shared_ptr<Blob> store_in_place(const SavedTensor& tensor, const Segments& segments, const Target& target,
                                       Reserved& reserved);
  std::shared_ptr<Blob> blob_with_room(const Site& site, const SavedTensor& tensor, const CodecSpec& spec,
                                       Segments segments, Place place, const Target& target);
  void fill(Blob& blob, Site& site, const SavedTensor& tensor, const Target& target, Written written);
  void encode(const Blob& blob, Site& site, const SavedTensor& tensor, const Target& target);
  SegmentSummary* next_summary(Site& site, const Stream& stream, Memory& memory);
  void record(const SavedTensor& tensor, const Reserved& reserved);
  bool ask_for_more_bits(Site& site);
  Remedy raise(Site& site, double noise);
  [[nodiscard]] bool is_room_to_raise(const Site& site, const CodecSpec& spec) const;
  void begin_budget();
  void look_what_is_left(const SavedTensor& tensor, const Stream& stream, Memory& memory);
  void settle_budget();
  void plan_within_budget();
  void note_what_ran_again();
  [[nodiscard]] bool holds_other_share() const;
  void note_what_comes_behind();
  void choose_within_budget(const Site& site, const SavedTensor& tensor, Choice& choice) const;
  Want fit_into_budget(const Site& site, const SavedTensor& tensor, const Want& have);
  [[nodiscard]] bool plans_bytes() const { return budget_ && !offload_; }
  [[nodiscard]] HeldMemory::Part hold(std::size_t bytes, const Target& target, Reserved& reserved);
  [[nodiscard]] Error over_budget() const;
  std::shared_ptr<Blob> exact_blob(const Site& site, HeldMemory::Part held);
  std::shared_ptr<Blob> dropped_blob(const Site& site, const SavedTensor& tensor, const CodecSpec& spec);
  [[nodiscard]] bool moves_bytes() const;
  void add_times(const Site& site, SiteReport& row) const;
  [[nodiscard]] bool is_dropped(const Site& site) const;
  void add_variance(const Site& keeper, SiteReport& row) const;
  [[nodiscard]] bool is_tried(const Site& site) const;
  Seed next_seed(const Site& site);
  [[nodiscard]] Seed trial_seed(const Site& site) const;

  const std::string preset_;  ///< as requested
  const SessionOptions options_;
  const Policy policy_;
  const bool by_sample_;
  const std::optional<MemoryBudget> budget_;
  const std::shared_ptr<store::Store> offload_;  ///< null if everything stays on its device
  std::atomic<std::uint64_t> encoded_count_{0};
  std::atomic<std::int64_t> saves_{0};
  std::atomic<std::int64_t> step_{0};
  std::atomic<bool> is_asked_{false};   ///< backward of this step has begun
  std::atomic<bool> has_trial_{false};  ///< lets next_seed() avoid the lock
  std::atomic<bool> is_over_budget_{false};
  std::atomic<std::size_t> wanted_{0};  ///< if so, what the step would have held
  /// Whether what follows each site is known; false in the first step after load().
  std::atomic<bool> knows_step_{false};
  std::atomic<bool> has_stayed_{false};       ///< something should have left its device, but nothing can move it
  std::atomic<bool> runs_again_{false};       ///< modules run again in backward
  std::atomic<std::size_t> beside_bytes_{0};  ///< for which hold_beside() has granted room and that are not released
  std::atomic<bool> has_beside_{false};       ///< hold_beside() has granted room in this step

  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();

  std::mutex mutex_;         ///< guards everything below
  double step_began_ = 0.0;  ///< as measured by now()
  Adaptation adaptation_;
  bool is_observed_ = false;  ///< whether this step is observed
  static constexpr int kAnyBits = 64;
  bool must_plan_ = false;                 ///< plan before the next step: a site needs more bits
  double growth_ = 1.0;                    ///< size of this step relative to the one before, as far as is seen
  int most_bits_ = kAnyBits;               ///< the most that planned sites get in the rest of this step
  std::optional<double> overlap_;          ///< what a step holds at once, relative to all that it keeps
  std::optional<double> planned_overlap_;  ///< that of the last plan
  int run_ = 0;                            ///< of the module that ran again last in this step, from 1
  bool changes_next_ = false;              ///< other modules run again from the next step on
  int learning_steps_ = 0;                 ///< steps left until a plan can be made for these modules
  bool has_changed_ = false;               ///< so there is none for this step
  std::optional<Trial> trial_;
  std::deque<Site> sites_;  ///< a deque, so that sites never move
  std::unordered_map<std::string, SiteId> site_by_name_;
  std::vector<Site*> order_;  ///< sites of the last step, in the order of their first save
};

}  // namespace actzip::session

namespace actzip {

/// What keep() needs from reserve().
struct Reservation::Inside {
  SavedTensor tensor;
  Stream stream;
  Memory& memory;
  session::Reserved reserved;
};

}  // namespace actzip
