// A session decides how each tensor that a framework saves for backward is kept. An adapter describes every saved
// tensor; the session chooses a codec, encodes, shares, and later restores.
//
//   SiteId site = session.site({"layers.0", "linear", "input", 0, Use::linear_input});
//   Kept kept = session.keep(site, saved, stream, memory);        // forward
//   Allocation values = restore(kept, stream, memory);            // backward, any thread, as often as needed
//
// An operator that encodes the tensor in the same pass as its own work reserves room first and writes the bytes itself:
//
//   Reservation reserved = session.reserve(site, saved, stream, memory);
//   if (reserved.wants_bytes()) ...                               // encode into reserved.bytes() by reserved.spec()
//   Kept kept = session.keep(std::move(reserved), Written::tensor);
//
// A session is thread-safe. A Kept owns everything that restoring it needs, so the session may be destroyed before
// backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actzip/memory.hpp"
#include "actzip/policy.hpp"
#include "actzip/report.hpp"
#include "actzip/saved_tensor.hpp"
#include "actzip/stream.hpp"
#include "actzip/types.hpp"
#include "actzip/view.hpp"

namespace actzip {

struct SessionOptions {
  std::string preset = "default";  ///< a preset of Policy, or a level: see levels.hpp
  /// 1, 2, 3, 4 or 8: see Policy. Any other number from 1 to 8 is an average, which a plan distributes: see `adapt`.
  std::optional<double> bits = std::nullopt;
  std::int64_t min_elems = 1024;  ///< smaller tensors are kept as is
  /// Seed of signs and dither. The session does not draw from the framework's generators. An adapter that lets
  /// attention run again in backward sets a generator to the state from which its dropout was drawn, and restores it
  /// afterwards.
  std::uint64_t seed = 0;
  bool dry = false;  ///< compress nothing; report what would be done
  /// If not empty, the name of the only site to compress. All others are kept as is, and nothing is shared.
  std::string only = {};
  std::vector<Rule> rules = {};  ///< these come before the preset; the first rule that matches applies
  /// How bits are distributed:
  /// - "layer": a plan gives more bits to the sites that matter more, `bits` on average (default 2). An observed step
  ///   finds out how sensitive the gradient is to each site.
  /// - "measured": the same, with sensitivities that the caller measures (see Session::set_trial).
  /// - "sample": within each site, more bits go to the samples that matter more.
  /// - "sample+layer", "sample+measured": both.
  /// - "": no adaptation; the preset decides.
  std::string adapt = {};
  std::int64_t interval = 0;  ///< steps from one adaptation to the next; 0: 200, or 1,000 if measured
  /// Whether samples are weighed by their gradients when they were last seen. The adapter is told which samples a step
  /// has and keeps statistics of `num_samples` of them. Allowed with "sample".
  bool use_gradient = false;
  std::int64_t num_samples = 0;
  /// Text of a codec, rotated or affine: its name, groups, rounding and statistics replace those of the usual codecs;
  /// policy and plan choose the bits. "": the usual codecs, rotated and affine:8:dithered.
  std::string codec = {};
  int max_bits = 0;  ///< the most bits that a plan gives a site; 0: no limit, and a site may stay as is
  /// Whether an adapter that can compare gradients checks what compression does to them: see Session::wants_look(). If
  /// not set, it does, unless the preset is one codec for everything or a level of another system.
  std::optional<bool> guard = std::nullopt;
  /// Limit on the memory held between forward and backward, as text: see parse_budget(). As with `adapt`, bits go where
  /// they matter, as many as fit; in the first steps, while the session learns sizes, every site gets the fewest bits.
  /// The limit holds at any time: if a step does not fit with the fewest bits, restoring a tensor of that step throws
  /// Error(budget_too_small), which says how much is missing. "": no limit.
  std::string budget = {};
  /// Where kept bytes wait for backward. With a budget, only what does not fit is moved, and the bits remain those of
  /// the preset.
  /// - "host": what is kept of GPU tensors waits in pinned host memory; what is kept of CPU tensors stays in place.
  /// - A folder (write "./host" for a folder of that name): what is kept of CPU tensors waits in a file there, which
  ///   has no name and is gone with the session. GPU tensors are refused.
  /// - "": everything stays on its device.
  std::string offload = {};
};

/// The value of SessionOptions::offload for pinned memory.
inline constexpr std::string_view kToHost = "host";

/// A session draws its seeds from seed_start() in steps of kSeedStep, each mixed by spread_seed(), so sessions with
/// neighbouring seeds share no signs. Public for adapters that make seeds where a graph runs.
inline constexpr std::uint64_t kSeedStep = 0x9E3779B97F4A7C15ULL;
constexpr std::uint64_t seed_start(std::uint64_t session_seed) noexcept { return session_seed * 0xD1342543DE82EF95ULL; }
constexpr std::uint64_t spread_seed(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

struct SiteId {
  std::uint32_t value = 0;
  bool operator==(const SiteId&) const = default;
};

class Blob;

namespace session {
class State;
}

/// Noise that is added at one site to measure how much of the gradient's variance comes from there.
struct TrialNoise {
  CodecSpec spec;           ///< codec by which a restored tensor is encoded once more
  double error = 0.0;       ///< squared error of that encoding, relative to what was saved
  double kept_error = 0.0;  ///< squared error of what is kept anyway, on the same scale
  Seed seed{0};             ///< of this noise; sessions with equal seeds learn the same from equal steps
};

/// What the session keeps in place of a saved tensor. Copies share it; the last copy frees it.
struct Kept {
  Keep how = Keep::as_is;                 ///< if as_is, the adapter keeps the tensor itself alongside this object
  bool as_mask = false;                   ///< the blob holds values, but this saver needs only their mask
  bool derived = false;                   ///< the blob holds the values of `source`: see Session::keep()
  bool has_segment_bits = false;          ///< each sample has its own number of bits
  std::shared_ptr<const Blob> blob = {};  ///< null if nothing was encoded and nothing can be shared
  /// If derived or recomputed: the entry by which other savers of the same memory find it.
  std::shared_ptr<const Blob> mark = {};
  /// Name of the site that it was kept for; for messages and profiles.
  std::shared_ptr<const std::string> site = {};
  std::shared_ptr<const TrialNoise> trial = {};  ///< set if a plan may choose how this site is kept
};

/// What the bytes of a Reservation hold when it is kept.
enum class Written : std::uint8_t {
  nothing,  ///< nothing yet: the session encodes the tensor
  tensor,   ///< the encoding of the tensor
  own,      ///< an encoding of something else that only its saver can read; never shared
};

/// The session's decision about one saved tensor, with room for its encoding: the state between reserve() and keep().
/// If a Reservation is destroyed without keep(), it appears in no report or budget, and no other tensor gets its seed.
class Reservation {
 public:
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  /// Whether the tensor is to be encoded. If not, there is nothing to write.
  [[nodiscard]] bool wants_bytes() const;

  /// How to encode the tensor, where to write the encoding, and in the order of which stream. Groups must not restart
  /// anywhere. Writing is optional: keep() can encode the tensor. Require wants_bytes().
  [[nodiscard]] const CodecSpec& spec() const;
  [[nodiscard]] Seed seed() const;
  [[nodiscard]] ByteSpan bytes() const;
  [[nodiscard]] const Stream& stream() const;

  /// The tensor as the caller described it.
  [[nodiscard]] const SavedTensor& tensor() const;

  /// Name of its site, for messages and profiles.
  [[nodiscard]] const std::string& site() const;

 private:
  friend class session::State;
  struct Inside;
  explicit Reservation(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

/// What a session does about a site after a check.
enum class Remedy : std::uint8_t {
  none,       ///< nothing: little of the gradient is noise
  more_bits,  ///< the site gets more bits from now on; under a budget, from the next plan on
  exact,      ///< the site is kept as is from now on
  no_room,    ///< nothing, although much is noise: more bits would take too much memory
};

/// How strongly noise in the values of one site affects the gradient.
struct SiteSensitivity {
  SiteId site;
  double value = 0.0;  ///< variance of the gradient, relative to its square, for a relative squared error of 1
};

/// What one step reveals about where bits matter. docs/plan.md explains how it is found.
struct Observation {
  std::vector<SiteSensitivity> sites = {};
  /// Variance of the whole gradient over batches, relative to its square; not set if unknown.
  std::optional<double> gradient_variance = {};
  /// Weight of these figures against what was known before. One step is one sample of quantities that change slowly.
  double weight = 0.5;
};

/// A step that is repeated to measure sensitivities: with the same seeds each time, except at the sites being tried.
struct Trial {
  std::uint64_t seed = 0;
  std::vector<SiteId> sites = {};  ///< kept with the noise of TrialNoise, under seeds of their own
  bool observe = false;            ///< what wants_observation() returns during the trial
};

/// One of the sites that save a tensor.
struct SavedFor {
  SiteId site;
  OperatorFacts facts = {};
};

/// How to keep a tensor outside the session, for instance in a compiled graph.
struct Decision {
  Keep keep = Keep::as_is;
  CodecSpec spec = Copy{};  ///< if encoded
  Segments segments = {};   ///< where its groups restart
  SiteId site;              ///< the most demanding of its savers
  std::string_view reason;  ///< valid as long as the session
  Cause cause = Cause::none;
};

/// What is kept of a tensor outside the session.
struct KeptElsewhere {
  SiteKind kind = SiteKind::as_is;
  CodecSpec spec = Copy{};  ///< if encoded
  std::size_t bytes = 0;
  std::string_view reason;  ///< must stay valid as long as the session
  Cause cause = Cause::none;
};

/// Decodes what was kept and returns the elements of the tensor: dense, in the memory order and of the type in which
/// they were saved. Runs on `stream`, which is on the device of the encoding. The session keeps the last result until
/// it restores something else or the blob is freed, so treat the result as read-only.
///
/// Requires kept.how == encoded. Throws Error as decode() does, with the site's name; Error(budget_too_small) if the
/// step passed its budget; Error(store_failure) if the bytes cannot be fetched from their store; and, for indices,
/// Error(index_out_of_bound) if a device has reported by now that the session was given an index outside its bound.
Allocation restore(const Kept& kept, const Stream& stream, Memory& memory);

/// Tells the session that backward has begun. For tensors kept as is, which nobody restores; restore() and
/// encoding_of() do this themselves.
void note_asked(const Kept& kept);

/// For a tensor with SavedTensor::is_input: tells the session whether somebody else still holds the tensor's memory now
/// that backward needs it. If so, the tensor is kept as is from the next step on and counts as 0 bytes: a compressed
/// copy would only add memory.
void note_holder(const Kept& kept, bool is_held);

/// Whether restore() returns other values than were saved.
bool is_lossy(const Kept& kept);

/// Checks whether saved indices lay inside their bounds, once their device has looked at them. Small; holds no encoded
/// bytes.
class IndexCheck {
 public:
  IndexCheck(std::shared_ptr<session::State> state, std::shared_ptr<void> encoded)
      : state_(std::move(state)), encoded_(std::move(encoded)) {}

  /// Blocks until the indices are encoded. Throws Error(index_out_of_bound) if an index lay outside its bound.
  void finish(Memory& memory) const;

 private:
  std::shared_ptr<session::State> state_;
  std::shared_ptr<void> encoded_;
};

/// Returns nothing if `kept` holds no indices, or if they have been checked already: on the CPU keep() throws.
std::optional<IndexCheck> index_check(const Kept& kept);

/// The encoded bytes of a Kept, for operators that decode them in the same pass as their own work.
struct Encoding {
  CodecSpec spec;
  ConstByteSpan bytes;
  Seed seed;
  Segments segments;  ///< samples with bits of their own, or one segment
  Allocation owner;   ///< keeps `bytes` alive
};

/// Returns bytes that are ready on `stream`, which is on the device of the encoding. Requires kept.how == encoded.
/// Throws Error(budget_too_small) if the step passed its budget, and Error if the bytes cannot be fetched from their
/// store.
Encoding encoding_of(const Kept& kept, const Stream& stream, Memory& memory);

/// Which part of a step a site belongs to, as far as its adapter knows.
enum class StepPart : std::uint8_t { unknown, model, loss };

/// Decides how saved tensors are kept, and reports what it did. Thread-safe.
class Session {
 public:
  /// Throws Error(invalid_spec) for options outside their range, and Error(store_failure) if no file can be made in the
  /// folder that `offload` names.
  explicit Session(const SessionOptions& options = {});

  /// Begins a step: ordinals of sites start again at 0, and the next report covers this step.
  ///
  /// Throws Error(index_out_of_bound), and begins nothing, if a device has reported an index outside its bound since
  /// the last check and no IndexCheck has thrown for it: gradients of the step before may be wrong. Throws
  /// Error(budget_too_small) if the guard has asked for more bits than the budget has room for.
  void begin_step();

  /// Returns the site of that key, and creates it if it is new. Copies the names.
  SiteId site(const SiteKey& key);

  /// Returns the site of that name, as the report spells it. Throws Error(invalid_spec) if there is none.
  [[nodiscard]] SiteId site_named(const std::string& name) const;

  /// Returns the site's name, as in the report; valid as long as the session.
  [[nodiscard]] const std::string& site_name(SiteId site) const;

  /// Decides how to keep one saved tensor and, if it is to be encoded, encodes it on `stream`. The tensor may be freed
  /// afterwards in the order of `stream`. Throws Error as encode() does, with the site's name; Error(store_failure) if
  /// the store has no room; and on the CPU Error(index_out_of_bound). Nothing is kept then.
  ///
  /// `source` is what was kept of another tensor, from which the adapter can compute this one. If it is as faithful as
  /// this site requires, nothing is kept for this tensor and the result is `derived`. Otherwise the source's site
  /// learns what is required and keeps that from the next step on.
  Kept keep(SiteId site, const SavedTensor& tensor, const Stream& stream, Memory& memory, const Kept* source = nullptr);

  /// The first half of keep(), for operators that may encode the tensor in the same pass as their own work: decides,
  /// and makes room for the encoding if there is to be one. Until the result is kept, the tensor must not change and
  /// `memory` must not move. Throws as above.
  [[nodiscard]] Reservation reserve(SiteId site, const SavedTensor& tensor, const Stream& stream, Memory& memory);

  /// The second half of keep(), in the same step: encodes the tensor if bytes are wanted and none were written, and
  /// keeps it. `reserved` must come from this session. Throws as above.
  Kept keep(Reservation reserved, Written written);

  /// Returns what keep() would do with a tensor that serves all of `savers` at once. Each saver brings facts of its
  /// own; those in `tensor` are ignored. A plan of this session applies. Keeps nothing and records nothing. Requires at
  /// least one saver.
  [[nodiscard]] Decision decide(const SavedTensor& tensor, std::span<const SavedFor> savers);

  /// Adds to the report of this step what is kept of `tensor` outside the session. Of the tensor only type, shape and
  /// `bytes` count; set `bytes` whatever the role.
  void note(SiteId site, const SavedTensor& tensor, const KeptElsewhere& kept);

  /// For the timeline of this step: what is kept outside the session for `site` exists from now on. Returns the time.
  double note_made(SiteId site);

  /// What note_made() was called for, at the time `kept_at`, is no longer needed. Does nothing if the site has kept
  /// something else since.
  void note_released(SiteId site, double kept_at);

  /// Whether an adapter should check sites: how does compressing them affect a gradient?
  [[nodiscard]] bool is_guarded() const;

  /// Whether the site should be checked in this step, of which backward has not begun yet: when it is new, and once in
  /// each later round. Rounds begin with steps 50, 100,
  /// 200, 400, 800 and every thousandth, because gradients shrink while a network learns, and noise need not.
  [[nodiscard]] bool wants_look(SiteId site) const;

  /// The step with which the latest round began; 0 if there was none. There are none while plans choose bits, since
  /// they follow what is observed.
  [[nodiscard]] std::int64_t look_round() const;

  /// Records the result of a check, and returns what the session does about it. `noise` is the squared norm of the
  /// gradient's error relative to that of the gradient; infinite if the error is not finite.
  /// - A new site that makes almost all of a gradient noise is kept as is from now on, whatever policy and plan say.
  /// - In later rounds a site gets as many more bits as it needs, as long as all sites together take no more than a
  /// tenth
  ///   of what a step would hold uncompressed in this way.
  /// - Under a budget, it gets more bits in the next plan instead, if there are more, and should be checked again.
  Remedy note_look(SiteId site, double noise);

  /// Whether checking a site makes sense now: not while a budget has no plan for it.
  [[nodiscard]] bool is_settled(SiteId site) const;

  /// Counts `bytes` that an adapter keeps in addition against the budget, until the returned object is released.
  /// Returns null if the budget has no room for them besides what the step keeps after `site`, or if that is not known
  /// yet. Without a budget the result is never null.
  [[nodiscard]] std::shared_ptr<void> hold_beside(SiteId site, std::size_t bytes);

  [[nodiscard]] bool was_looked_at(SiteId site) const;

  /// Remembers which part of a step a site belongs to. Only the adapter uses it, to set OperatorFacts::after_model; the
  /// session makes it part of a saved state.
  void note_part(SiteId site, StepPart part);
  [[nodiscard]] StepPart part_of(SiteId site) const;

  /// Whether the step that has begun should be observed, so that learn() can be called. Stays true until learn() has
  /// made a plan or skip_observation() was called.
  [[nodiscard]] bool wants_observation() const;

  /// Marks the step that has begun as observed: what devices report about its samples is kept for learn().
  void note_observed();

  /// The counterpart of wants_observation() for measured sensitivities (adapt = "measured"): whether the caller should
  /// measure before the next step.
  [[nodiscard]] bool wants_measurement() const;

  /// Says that the step could not be observed. The next attempt comes after an interval.
  void skip_observation();

  /// Takes in what was observed or measured, and makes a new plan. Call it between two steps. Sites that are not named
  /// keep what is known of them. Returns false and learns nothing if a sensitivity is negative or not finite. Throws
  /// Error(budget_too_small) as begin_step() does.
  bool learn(const Observation& observation);

  /// All steps are trials until this is called with none. Trials do not count towards the interval.
  void set_trial(std::optional<Trial> trial);

  [[nodiscard]] bool is_trial() const;

  /// Records the variance of the whole gradient, relative to its square, as measured with the current bits.
  void set_measured_variance(double variance);

  /// For each site of the last step, in order.
  [[nodiscard]] std::vector<SiteBytes> site_bytes() const;

  /// Bytes held under a budget, and its limit as far as it is known.
  [[nodiscard]] std::pair<std::size_t, std::optional<std::size_t>> held() const;

  /// A module runs again in the backward of the last step. What it keeps belongs to that step.
  void resume_step();

  /// What this site has saved last is an argument or a result of a module that ran again, which counts elsewhere
  /// already.
  void note_counted(SiteId site);

  /// Says whether any parts of a step run again in backward, and keep their tensors only then. `changes`: from the next
  /// step on these are other parts, so a budget begins with the fewest bits again.
  void set_runs_again(bool any, bool changes);

  /// Whether the current plan adds more than 10 % to the gradient's own variance, as far as is known.
  [[nodiscard]] bool adds_much() const;

  /// Whether a plan distributes the bits.
  [[nodiscard]] bool adapts() const;

  /// Number of tensors saved since the session began.
  [[nodiscard]] std::int64_t saves() const;

  /// Returns a sentence that the user should read, once; usually empty.
  [[nodiscard]] std::string take_notice();

  /// Returns what the last step kept, and why.
  [[nodiscard]] Report report() const;

  /// Encoded bytes that currently wait for backward.
  [[nodiscard]] std::size_t live_bytes() const;

  /// Returns, as text, what the session has learned and how far its seeds have advanced. A session with the same
  /// options that loads this text continues bit for bit as this one would. Call it between two steps.
  [[nodiscard]] std::string save_state() const;

  /// Loads what save_state() returned. Throws Error(invalid_state), and changes nothing, if the text is anything else
  /// or this session has begun a step or has sites.
  void load_state(std::string_view text);

 private:
  std::shared_ptr<session::State> state_;
};

}  // namespace actzip
