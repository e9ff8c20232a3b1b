// What is kept between forward and backward. An adapter tells the session about each tensor that its framework saves;
// the session decides, encodes, shares, and later restores.
//
//   SiteId site = session.site({"layers.0", "linear", "input", 0, Use::linear_input});
//   Kept kept = session.keep(site, saved, stream, memory);        // forward
//   Allocation values = restore(kept, stream, memory);            // backward, any thread, as often as wanted
//
// An operator that encodes what it reads anyway, in one pass with its own work, asks first and writes the bytes itself:
//
//   Reservation reserved = session.reserve(site, saved, stream, memory);
//   if (reserved.wants_bytes()) ...                               // fills reserved.bytes() as reserved.spec() says
//   Kept kept = session.keep(std::move(reserved), Written::tensor);
//
// A session is thread-safe. What it keeps owns everything it needs: the session may be gone before backward.
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
  std::string preset = "default";  ///< see Policy; or a level: see levels.hpp
  /// 1, 2, 3, 4 or 8: see Policy. Any other number from 1 to 8 is an average, which a plan spends: see `adapt`.
  std::optional<double> bits = std::nullopt;
  std::int64_t min_elems = 1024;  ///< smaller tensors are kept as they are
  /// Of signs and dither. The framework's generators are not drawn from; an adapter that lets attention run again sets
  /// one to where its dropout was drawn, and back.
  std::uint64_t seed = 0;
  bool dry = false;  ///< compress nothing, report what would be done
  /// If not empty: the name of the one site that is compressed. The rest is kept as it is, and nothing is shared.
  std::string only = {};
  std::vector<Rule> rules = {};  ///< before the preset; the first that matches holds
  /// "layer": bits go to the sites where they matter, `bits` on average (2), by what an observed step tells.
  /// "measured": the same, with sensitivities that somebody measures (see Session::set_trial) in place of those.
  /// "sample": the bits of each site go to the samples where they matter. "sample+layer", "sample+measured": both.
  /// "": by the preset.
  std::string adapt = {};
  std::int64_t interval = 0;  ///< steps from one adaptation to the next; 0: 200, or 1,000 if measured
  /// Samples matter as their gradients did when they were last seen; an adapter that is told which samples a step has
  /// keeps statistics of `num_samples` of them. Allowed with "sample".
  bool use_gradient = false;
  std::int64_t num_samples = 0;
  /// Text of a codec, rotated or affine: its name, groups, rounding and statistics, with the bits of policy and plan,
  /// wherever these would take the usual one. "": rotated, and affine:8:nearest.
  std::string codec = {};
  int max_bits = 0;  ///< the most that a plan gives a site; 0: no limit, a site may stay as it is
  /// Whether an adapter that can compare gradients does so once for each site: see Session::note_look(). None:
  /// unless a preset asks for the same codec everywhere, or for what another system does.
  std::optional<bool> guard = std::nullopt;
  /// How much may be held between forward and backward, as text: see parse_budget(). Bits then go where they matter, as
  /// with `adapt`, as many as fit; the first steps, in which sizes are learned, have the fewest. It is kept at any
  /// time: if the fewest bits of a step do not fit, restoring a tensor of that step throws Error(budget_too_small),
  /// which says what is missing. "": no limit.
  std::string budget = {};
  /// "host": what is kept of tensors on a GPU waits in pinned memory of the host, and what is on the CPU stays there. A
  /// folder (one of that name is "./host"): what is kept of tensors on the CPU waits in a file there, which has no name
  /// and goes with the session; tensors on a GPU are refused. If there is a budget, only what does not fit, and bits
  /// stay those of the preset. "": everything stays on its device.
  std::string offload = {};
};

/// SessionOptions::offload for pinned memory.
inline constexpr std::string_view kToHost = "host";

/// A session's seeds are seed_start(), and steps from there, mixed: sessions with neighbouring seeds share no signs.
/// For adapters that make seeds where a graph runs.
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

/// Noise by which it is tried out how much of the gradient's variance comes from a site.
struct TrialNoise {
  CodecSpec spec;           ///< what a restored tensor is encoded with once more
  double error = 0.0;       ///< squared error that this makes, relative to what was saved
  double kept_error = 0.0;  ///< the same of what is kept anyway
  Seed seed{0};             ///< of this noise: sessions with equal seeds learn the same from equal steps
};

/// What the session keeps in place of a saved tensor. Copies share it; the last one frees it.
struct Kept {
  Keep how = Keep::as_is;                        ///< as_is: the adapter keeps the tensor itself, and this beside it
  bool as_mask = false;                          ///< the blob holds values, but this saver asked for the mask alone
  bool derived = false;                          ///< the blob holds the source's values: see Session::keep()
  bool has_segment_bits = false;                 ///< its samples have bits of their own
  std::shared_ptr<const Blob> blob = {};         ///< null if nothing was encoded and nothing can be shared
  std::shared_ptr<const Blob> mark = {};         ///< if derived or recomputed: by it other savers know of this memory
  std::shared_ptr<const std::string> site = {};  ///< name of the site that it was kept for, for messages and profiles
  std::shared_ptr<const TrialNoise> trial = {};  ///< if a plan may choose for it
};

/// What is in the bytes of a Reservation when it is kept.
enum class Written : std::uint8_t {
  nothing,  ///< the tensor is still to be encoded
  tensor,   ///< its encoding
  own,      ///< an encoding of something else, which only whoever saves it understands: not to be shared
};

/// What a session has decided to keep of one saved tensor, and room for its encoding: between reserve() and keep(). If
/// it goes without keep(), it counts nowhere; its seed is not given to another.
class Reservation {
 public:
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  /// Whether the tensor is to be encoded. If not, there is nothing to write.
  [[nodiscard]] bool wants_bytes() const;

  /// What to encode with, where to, and in the order of which stream; groups restart nowhere. The bytes need not be
  /// written. Require wants_bytes().
  [[nodiscard]] const CodecSpec& spec() const;
  [[nodiscard]] Seed seed() const;
  [[nodiscard]] ByteSpan bytes() const;
  [[nodiscard]] const Stream& stream() const;

  /// As it was described.
  [[nodiscard]] const SavedTensor& tensor() const;

  /// Name of its site, for messages and profiles.
  [[nodiscard]] const std::string& site() const;

 private:
  friend class session::State;
  struct Inside;
  explicit Reservation(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

/// What noise in the values of one site does to the gradient.
struct SiteSensitivity {
  SiteId site;
  double value = 0.0;  ///< variance of the gradient, relative to its square, for a relative squared error of 1
};

/// What one step tells about where bits matter. docs/plan.md says how it is found.
struct Observation {
  std::vector<SiteSensitivity> sites = {};
  /// Of the whole gradient over batches, relative to its square; none if not known.
  std::optional<double> gradient_variance = {};
  /// Of these figures beside what was known before: one step is one sample of what changes slowly.
  double weight = 0.5;
};

/// A step that is made again and again to measure: the same seeds each time, but for some sites.
struct Trial {
  std::uint64_t seed = 0;
  std::vector<SiteId> sites = {};  ///< kept with the noise of TrialNoise, and with a seed of their own
  bool observe = false;            ///< wants_observation() says yes
};

/// One of those for whom a tensor is saved.
struct SavedFor {
  SiteId site;
  OperatorFacts facts = {};
};

/// What is to be kept of a tensor, by somebody who keeps it without the session: in a compiled graph, for instance.
struct Decision {
  Keep keep = Keep::as_is;
  CodecSpec spec = Copy{};  ///< if encoded
  Segments segments = {};   ///< where its groups restart
  SiteId site;              ///< the most demanding of its savers
  std::string_view reason;  ///< valid as long as the session
  Cause cause = Cause::none;
};

/// What somebody keeps of a tensor without the session.
struct KeptElsewhere {
  SiteKind kind = SiteKind::as_is;
  CodecSpec spec = Copy{};  ///< if encoded
  std::size_t bytes = 0;
  std::string_view reason;  ///< must stay valid as long as the session
  Cause cause = Cause::none;
};

/// The elements of an encoded tensor, dense, in the memory order and of the type in which they were saved.
/// Runs on `stream`, which is on the device of the encoding. What was restored last is kept until something else is
/// restored or its blob is freed, so treat the result as read-only.
/// Requires kept.how == encoded. Throws Error as decode() does, with the site's name; and Error(index_out_of_bound) if
/// it is known by now that an index which this site kept lay outside its bound.
Allocation restore(const Kept& kept, const Stream& stream, Memory& memory);

/// Backward begins: for what is kept as it is, which nobody restores. restore() and encoding_of() say so themselves.
void note_asked(const Kept& kept);

/// Of a tensor with SavedTensor::is_input: whether somebody else still holds its memory, now that backward asks for it.
/// If so, it is kept as it is from the next step on, and counts nothing: few bits would come on top of it.
void note_holder(const Kept& kept, bool is_held);

/// Whether restore() gives other values than were saved.
bool is_lossy(const Kept& kept);

/// Whether indices lay inside their bounds, for whoever can ask when their device has looked at them. Small, and holds
/// no bytes.
class IndexCheck {
 public:
  IndexCheck(std::shared_ptr<session::State> state, std::shared_ptr<void> encoded)
      : state_(std::move(state)), encoded_(std::move(encoded)) {}

  /// Waits until the indices are encoded. Throws Error(index_out_of_bound) if one lay outside.
  void finish(Memory& memory) const;

 private:
  std::shared_ptr<session::State> state_;
  std::shared_ptr<void> encoded_;
};

/// None if `kept` holds no indices, or it is known already: on the CPU keep() has told.
std::optional<IndexCheck> index_check(const Kept& kept);

/// The bytes of a Kept, for whoever decodes them in one pass with its own work.
struct Encoding {
  CodecSpec spec;
  ConstByteSpan bytes;
  Seed seed;
  Segments segments;  ///< samples with bits of their own, or one
  Allocation owner;   ///< of the bytes
};

/// Bytes that are ready on `stream`, which is on the device of the encoding. Requires kept.how == encoded.
Encoding encoding_of(const Kept& kept, const Stream& stream, Memory& memory);

/// What of a step a site belongs to, as far as its adapter has found out.
enum class StepPart : std::uint8_t { unknown, model, loss };

class Session {
 public:
  /// Throws Error(invalid_spec) for options outside their range.
  explicit Session(const SessionOptions& options = {});

  /// Begins a step: ordinals start again, and the next report is of this step.
  /// Throws Error(index_out_of_bound), and begins nothing, if a device has found such an index since it was last asked,
  /// and nobody has finished an IndexCheck: gradients of the step before may be wrong.
  void begin_step();

  /// The site of that key, made when it is new. Names are copied.
  SiteId site(const SiteKey& key);

  /// The site of that name, as the report gives it. Throws Error(invalid_spec) if there is none.
  [[nodiscard]] SiteId site_named(const std::string& name) const;

  /// Its name, as in the report; valid as long as the session.
  [[nodiscard]] const std::string& site_name(SiteId site) const;

  /// Decides about one saved tensor and, if it is to be encoded, encodes it on `stream`. The tensor may be freed in the
  /// order of `stream` afterwards. Throws Error as encode() does, with the site's name, and on the CPU
  /// Error(index_out_of_bound); nothing is kept then.
  /// `source` is what was kept of another tensor, from which the adapter can compute this one. If that is as faithful
  /// as this site asks, nothing is kept for it, and the result is `derived`; else the source's site learns what is
  /// asked for, and keeps that from the next step on.
  Kept keep(SiteId site, const SavedTensor& tensor, const Stream& stream, Memory& memory, const Kept* source = nullptr);

  /// The first half of keep(), for whoever may encode the tensor in one pass with its own work: decides, and gives room
  /// for the encoding if there is to be one. `tensor` stays as it is, and `memory` where it is, until it is kept.
  [[nodiscard]] Reservation reserve(SiteId site, const SavedTensor& tensor, const Stream& stream, Memory& memory);

  /// The second half, in the same step: encodes the tensor if nothing was written though bytes are wanted, and keeps
  /// it. Throws as above. `reserved` came from this session.
  Kept keep(Reservation reserved, Written written);

  /// What keep() would do with a tensor that serves all of these at once, the role and the facts in `tensor` aside.
  /// Nothing is kept or noted. A plan has no say. Requires at least one saver.
  [[nodiscard]] Decision decide(const SavedTensor& tensor, std::span<const SavedFor> savers);

  /// For the report of this step: what somebody keeps of `tensor`, of which nothing but type, shape and bytes is looked
  /// at.
  void note(SiteId site, const SavedTensor& tensor, const KeptElsewhere& kept);

  /// For the picture of this step: what somebody keeps for `site` is there from now on, or is needed no more.
  void note_made(SiteId site);
  void note_released(SiteId site);

  /// Whether an adapter is to look at each site once: what do its few bits do to a gradient?
  [[nodiscard]] bool is_guarded() const;

  /// Somebody has looked at that site. If its few bits spoil a gradient, it is kept as it is from now on, whatever
  /// policy and plan say; under a budget it gets more bits in the next plan, and is to be looked at again. Gives
  /// whether it is kept as it is from now on.
  bool note_look(SiteId site, bool spoils_gradient);

  /// Whether it makes sense to look at a site now: not while a budget has no plan for it.
  [[nodiscard]] bool is_settled(SiteId site) const;

  /// Counts `bytes` that an adapter keeps beside everything else into the budget, until what it gives is released. Null
  /// if there is no room, `site` and all that comes behind it in the step considered. Something without a budget, too.
  [[nodiscard]] std::shared_ptr<void> hold_beside(SiteId site, std::size_t bytes);

  [[nodiscard]] bool was_looked_at(SiteId site) const;

  /// For the adapter, which says OperatorFacts::after_model by it, to find again: it is part of a saved state.
  void note_part(SiteId site, StepPart part);
  [[nodiscard]] StepPart part_of(SiteId site) const;

  /// Whether the step that has begun should be observed, so that learn() can be called. Stays true until it was.
  [[nodiscard]] bool wants_observation() const;

  /// The step that has begun is observed: what devices say of its samples is kept for learn().
  void note_observed();

  /// The same as wants_observation() with adapt = "measured": whether somebody should measure before the next step.
  [[nodiscard]] bool wants_measurement() const;

  /// The step could not be observed: the next one is, when an interval has passed.
  void skip_observation();

  /// Takes in what was observed or measured, and plans anew; between two steps. Sites that are not named keep what is
  /// known of them. Values that are not finite are refused as a whole: false.
  bool learn(const Observation& observation);

  /// Steps are trials until none is set: they count for no interval.
  void set_trial(std::optional<Trial> trial);

  [[nodiscard]] bool is_trial() const;

  /// The variance of the whole gradient, relative to its square, that somebody measured with the bits of now.
  void set_measured_variance(double variance);

  /// Whether the plan of now adds more than 10 % to the gradient's own variance, as far as is known.
  [[nodiscard]] bool adds_much() const;

  /// Whether a plan spends the bits.
  [[nodiscard]] bool adapts() const;

  /// Tensors that were saved since the session began.
  [[nodiscard]] std::int64_t saves() const;

  /// What its user should know, once, in a sentence; mostly empty.
  [[nodiscard]] std::string take_notice();

  /// What the last step kept.
  [[nodiscard]] Report report() const;

  /// Encoded bytes that wait for backward now.
  [[nodiscard]] std::size_t live_bytes() const;

  /// What it has learned and how far its noise has come, as text: a session with the same options that load_state() is
  /// given it goes on, bit for bit, as this one would. Between two steps.
  [[nodiscard]] std::string save_state() const;

  /// For a session that has kept nothing yet. Throws Error(invalid_state), and changes nothing, for another text.
  void load_state(std::string_view text);

 private:
  std::shared_ptr<session::State> state_;
};

}  // namespace actzip
