#include "session/state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>
#include <variant>

#include "actzip/codec.hpp"
#include "actzip/error.hpp"
#include "actzip/levels.hpp"
#include "actzip/registry.hpp"
#include "session/blob.hpp"
#include "store/store.hpp"

namespace actzip::session {

namespace {

/// Below this many bytes, finding a tensor that is kept as is again costs more than keeping it twice.
constexpr std::size_t kWorthSharing = 4096;

std::size_t tensor_bytes(const SavedTensor& tensor) {
  if (tensor.role != Role::activation) return tensor.bytes;
  return static_cast<std::size_t>(unique_elems(tensor.view.shape)) * dtype_bytes(tensor.view.dtype);
}

/// After a ReLU, a mask plane makes half of the elements exact, and the rest lie in half the range. Without the plane,
/// one more bit is as faithful (2 bits with a plane: 0.045 of squared error; 3 bits without: 0.035).
Want without_plane(Want want) {
  constexpr int kMost = 4;
  if (auto* rotated = std::get_if<Rotated>(&want.spec)) rotated->bits = Bits(std::min(rotated->bits.value + 1, kMost));
  return want;
}

/// Returns the store that `offload` names; null if bytes stay on their device.
std::shared_ptr<store::Store> store_for(const std::string& offload, std::shared_ptr<HeldMemory> budget) {
  if (offload.empty()) return nullptr;
  if (offload != kToHost) return store::file_store(offload);
  return store::pinned_store({.budget = std::move(budget)});
}

/// Whether a saver that needs a mask is served by a blob of values.
bool asks_for_plane(const CodecSpec& asked, const Blob& blob) {
  return std::holds_alternative<Mask>(asked) && std::holds_alternative<Rotated>(blob.contents().spec);
}

}  // namespace

State::State(const SessionOptions& options)
    : preset_(options.preset),
      options_(written_out(options)),
      policy_(options_.preset, policy_bits(options_), options_.rules, parse_family(options_.codec)),
      by_sample_(parse_adapt(options_.adapt).by_sample),
      budget_(parse_budget(options_.budget)),
      offload_(store_for(options_.offload, budget_ ? held : nullptr)),
      adaptation_(options_) {
  if (options.min_elems < 0) {
    throw Error(ErrorCode::invalid_spec, fmt::format("session: min_elems {} (allowed: 0 or more)", options.min_elems));
  }
  begin_budget();
}

double State::now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }

void State::begin_step() {
  overflow.check();
  const std::lock_guard lock(mutex_);
  settle_budget();
  held->begin_step();
  ++step_;
  step_began_ = now();
  order_.clear();
  run_ = 0;
  is_observed_ = false;
  is_asked_ = false;
  if (!trial_) adaptation_.begin_step();
}

std::string State::take_notice() { return offload_ ? offload_->take_notice() : std::string(); }

void State::foresee(const Stream& reader, Memory& memory) {
  if (offload_) offload_->foresee(reader, memory);
}

SiteId State::site(const SiteKey& key) {
  const std::lock_guard lock(mutex_);
  return make_site(key);
}

/// Requires the mutex.
SiteId State::make_site(const SiteKey& key) {
  std::string name = actzip::site_name(key);
  if (const auto known = site_by_name_.find(name); known != site_by_name_.end()) {
    learn_use(sites_[known->second.value], key);
    return known->second;
  }
  Site& site = sites_.emplace_back();
  try {
    site.id = SiteId{static_cast<std::uint32_t>(sites_.size() - 1)};
    site.module = key.module;
    site.op = key.op;
    site.slot = key.slot;
    site.ordinal = key.ordinal;
    site.name = std::move(name);
    learn_use(site, key);
    site_by_name_.emplace(site.name, site.id);
  } catch (...) {
    sites_.pop_back();  // otherwise its number would refer to half a site
    throw;
  }
  return site.id;
}

/// A loaded site knows its bits, but not its use until its adapter names it.
void State::learn_use(Site& site, const SiteKey& key) const {
  if (site.row != nullptr && site.use == key.use) return;
  site.row = site.last_row = &policy_.row(key);
  site.use = key.use;
}

Site& State::site_at(SiteId id) {
  const std::lock_guard lock(mutex_);
  return sites_[id.value];
}

SiteId State::site_named(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = site_by_name_.find(name);
  if (found == site_by_name_.end()) {
    throw Error(ErrorCode::invalid_spec, fmt::format("session: no site '{}' (allowed: names as in the report)", name));
  }
  return found->second;
}

const std::string& State::site_name(SiteId site) { return site_at(site).name; }

SiteChoice State::choose(const Site& site, const SavedTensor& tensor) {
  SiteChoice choice = by_policy(site, tensor);
  choice.usual = choice.spec;
  if (site.look == Look::noisy && session::can_plan(effective_row(*site.row, tensor.facts), choice)) {
    const std::lock_guard lock(mutex_);
    if (site.raised && expected_error(*site.raised) < expected_error(choice.spec)) {
      choice.spec = *site.raised;
      choice.reason = "fewer bits of it made much of a gradient noise";
    }
  }
  if (!adaptation_.is_on() || tensor.role != Role::activation) return choice;
  choice.can_plan = can_plan(effective_row(*site.row, tensor.facts), choice);
  if (!choice.can_plan) return choice;
  choice.table_error = expected_error(choice.spec);
  const std::lock_guard lock(mutex_);
  // A plan of average bits does not know of the bits that the guard has given.
  const bool is_raised =
      site.raised && site.planned && !plans_bytes() && expected_error(choice.spec) < expected_error(site.planned->spec);
  if (site.planned && !is_raised) {
    choice.how = site.planned->how;
    choice.spec = site.planned->spec;
    choice.reason = "as planned";
  }
  if (plans_bytes()) choose_within_budget(site, tensor, choice);
  if (is_tried(site)) {
    choice.how = Keep::encoded;
    choice.spec = trial_noise(choice.spec).spec;
  }
  return choice;
}

/// Sites that share memory are tried together.
bool State::is_tried(const Site& site) const {
  if (!trial_) return false;
  return std::ranges::any_of(
      trial_->sites, [&](SiteId id) { return id == site.id || (site.keeper != nullptr && id == site.keeper->id); });
}

SiteChoice State::by_policy(const Site& site, const SavedTensor& tensor) const {
  const auto as_is = [](std::string_view reason, Cause cause) -> SiteChoice {
    return {{{Keep::as_is}, reason}, cause};
  };
  if (tensor.role == Role::parameter) return as_is(tensor.role_reason, Cause::parameter);
  if (tensor.role == Role::unsupported) return as_is(tensor.role_reason, Cause::type);
  if (is_small(tensor)) return as_is("small", Cause::small);
  if (is_callers(site, tensor)) return as_is("its caller held it until backward, in an earlier step", Cause::caller);
  if (site.look == Look::spoilt) return as_is("few bits of it spoilt a gradient", Cause::guard);
  Choice choice = policy_.choose(*site.row, tensor.view.dtype, tensor.view.shape, tensor.facts);
  const bool is_ruled = site.row->treatment == Treatment::ruled && std::holds_alternative<Copy>(site.row->spec);
  // Recomputing stays allowed: what is computed again follows from the site that is compressed.
  const bool is_wanted = options_.only.empty() || site.name == options_.only || choice.how == Keep::recomputed;
  if (!is_wanted) return as_is("another site alone is compressed", Cause::policy);
  return {std::move(choice), is_ruled ? Cause::rule : Cause::policy};
}

/// Whether the caller holds the tensor anyway, so that a compressed copy would only add memory. Never overrules a rule,
/// a plan, or another system's preset.
bool State::is_callers(const Site& site, const SavedTensor& tensor) const {
  if (!tensor.is_input || site.holder != Holder::caller || site.row->treatment == Treatment::ruled) return false;
  return (preset_ == "default" || preset_ == "exact") && options_.adapt.empty() && !adaptation_.is_on() &&
         options_.only.empty();
}

bool State::is_small(const SavedTensor& tensor) const { return unique_elems(tensor.view.shape) < options_.min_elems; }

Kept State::keep(SiteId id, const SavedTensor& tensor, const Stream& stream, Memory& memory, const Kept* source) {
  const Target target{stream, memory, source != nullptr ? source->blob.get() : nullptr};
  return keep(reserve(site_at(id), tensor, target), tensor, target, Written::nothing);
}

Reservation State::reserve(SiteId id, const SavedTensor& tensor, const Stream& stream, Memory& memory) {
  Reserved reserved = reserve(site_at(id), tensor, {.stream = stream, .memory = memory, .by_saver = true});
  return Reservation(
      std::unique_ptr<Reservation::Inside>(new Reservation::Inside{tensor, stream, memory, std::move(reserved)}));
}

Kept State::keep(Reservation reservation, Written written) {
  auto& [tensor, stream, memory, reserved] = *reservation.inside_;
  return keep(std::move(reserved), tensor, {.stream = stream, .memory = memory}, written);
}

/// The first half of keep(): decides what to keep and where. `Reserved` owns everything that this allocates or counts.
Reserved State::reserve(Site& site, const SavedTensor& tensor, const Target& target) {
  look_what_is_left(tensor, target.stream, target.memory);
  Reserved reserved{.site = &site, .choice = choose(site, tensor)};
  Outcome& outcome = reserved.outcome;
  outcome.reason = reserved.choice.reason;
  if (tensor.role != Role::activation && tensor.identity.address == 0) {
    outcome.before = outcome.after = tensor.bytes;
    if (budget_ && tensor.bytes > 0) {
      auto blob = exact_blob(site, hold(tensor.bytes, target, reserved));
      blob->site = &site;
      reserved.kept.blob = std::move(blob);
    }
  } else {
    reserve_memory(tensor, target, reserved);
  }
  if (outcome.kind == SiteKind::as_is) outcome.cause = reserved.choice.cause;
  if (outcome.cause == Cause::caller) outcome.before = outcome.after = 0;
  return reserved;
}

/// The second half: from here on, others know of the tensor.
Kept State::keep(Reserved reserved, const SavedTensor& tensor, const Target& target, Written written) {
  Site& site = *reserved.site;
  if (reserved.over_budget > 0) note_over_budget(reserved.over_budget);
  if (reserved.wants_bytes()) fill(*reserved.made, site, tensor, target, written);
  if (reserved.made) put_in_table(reserved, written);
  record(tensor, reserved);
  Kept kept = std::move(reserved.kept);
  kept.has_segment_bits = kept.blob && kept.blob->contents().segments.has_own_bits();
  if (reserved.choice.can_plan && !kept.as_mask) {
    TrialNoise noise = trial_noise(kept.blob ? kept.blob->contents().spec : Copy{});
    noise.seed = trial_seed(site);
    kept.trial = std::make_shared<const TrialNoise>(noise);
  }
  kept.site = {shared_from_this(), &site.name};
  return kept;
}

/// An activation has memory of its own: nothing is kept of it, or it is shared with an earlier save, derived from
/// another tensor, or stored.
void State::reserve_memory(const SavedTensor& tensor, const Target& target, Reserved& reserved) {
  Site& site = *reserved.site;
  Outcome& outcome = reserved.outcome;
  const SiteChoice& choice = reserved.choice;
  const std::size_t bytes = tensor_bytes(tensor);
  if (choice.how == Keep::as_is && bytes < kWorthSharing && !budget_) {
    outcome.before = outcome.after = bytes;
    return;
  }
  const Want& want = choice;
  ShareKeys keys = options_.only.empty() ? share_keys(tensor, target.stream, step_) : ShareKeys();
  const Found found = shared.find(keys, want);
  const bool is_counted = found.blob != nullptr || found.weaker != nullptr;  // so that the same memory counts once
  outcome.before = is_counted ? 0 : bytes;
  if (choice.how == Keep::shape_only || choice.how == Keep::recomputed) {
    return let_go(std::move(keys), want, reserved);
  }
  if (found.blob) return share(*found.blob, reserved);
  // A plan chooses for both sites. Without one, deriving must serve a site no worse than keeping its tensor would.
  const bool after_relu = found.weaker != nullptr && found.weaker_want.not_negative;
  const Want of_source = after_relu && !adaptation_.is_on() ? without_plane(want) : want;
  const Blob* const source = want.how == Keep::encoded ? target.source : nullptr;
  if (source != nullptr && serves(source->have, of_source)) {
    return derive(*source, std::move(keys), {want.how, want.spec, after_relu}, reserved);
  }
  if (source != nullptr) teach(*source, of_source);
  Want have = source != nullptr ? want : to_store(site, want, found);
  const bool has_values_for_others = has_plane(have.spec) || site.has_plane;
  if (plans_bytes() && (reserved.choice.can_plan || has_values_for_others)) have = fit_into_budget(site, tensor, have);
  store(tensor, {want, have, std::move(keys)}, target, reserved);
}

/// Keeps nothing: backward needs only the shape, or the operator runs again.
void State::let_go(ShareKeys keys, const Want& want, Reserved& reserved) {
  const bool is_shape = want.how == Keep::shape_only;
  reserved.outcome.kind = is_shape ? SiteKind::shape_only : SiteKind::recomputed;
  if (!options_.dry) reserved.kept.how = want.how;
  if (!is_shape) mark(std::move(keys), want, reserved);
}

/// Shares what an earlier save of the same memory keeps, which is faithful enough.
void State::share(const Blob& blob, Reserved& reserved) {
  const Blob::Contents& have = blob.contents();
  reserved.outcome.kind = SiteKind::shared;
  reserved.outcome.kept_by = have.site;
  reserved.kept = {.how = have.how,
                   .as_mask = have.how == Keep::encoded && asks_for_plane(reserved.choice.spec, blob),
                   .blob = blob.shared_from_this()};
}

/// Keeps nothing: the adapter computes the tensor from what another site keeps.
void State::derive(const Blob& source, ShareKeys keys, const Want& want, Reserved& reserved) {
  reserved.outcome.kind = SiteKind::derived;
  reserved.outcome.kept_by = &source.site->name;
  if (!options_.dry) reserved.kept = {.how = Keep::encoded, .derived = true, .blob = source.shared_from_this()};
  mark(std::move(keys), want, reserved);
}

/// Enters into the table of shares that this memory has been counted, although nothing of it is kept.
void State::mark(ShareKeys keys, const Want& want, Reserved& reserved) {
  reserved.made = exact_blob(*reserved.site, {});
  reserved.made->keys = std::move(keys);
  reserved.made->want = want;
  reserved.made->have = {Keep::shape_only, Copy{}};
  reserved.kept.mark = reserved.made;
}

/// Keeps the tensor, encoded or as is, for this site and for others that need no more.
void State::store(const SavedTensor& tensor, Storing storing, const Target& target, Reserved& reserved) {
  const auto& [want, have, keys] = storing;
  Site& site = *reserved.site;
  Outcome& outcome = reserved.outcome;
  if (have.how != want.how) outcome.reason = "as a later saver of the same memory asks";
  outcome.after = tensor_bytes(tensor);
  Segments segments;
  if (have.how == Keep::encoded) {
    outcome.kind = SiteKind::encoded;
    outcome.spec = have.spec;
    if (!target.by_saver) segments = segments_for(site, tensor, have.spec);
    outcome.samples = segments.has_own_bits() ? segments.count : 0;
    outcome.after = encoded_bytes(have.spec, tensor.view.dtype, tensor.view.shape, segments);
  }
  auto blob = options_.dry ? exact_blob(site, {}) : store_in_place(tensor, segments, target, reserved);
  const Keep how = blob->contents().how;
  blob->keys = std::move(storing.keys);
  blob->want = want;
  blob->have = have;  // in dry mode what would be kept, so that the report counts like the real run
  reserved.kept = {.how = how, .as_mask = how == Keep::encoded && asks_for_plane(want.spec, *blob), .blob = blob};
  reserved.made = std::move(blob);
}

/// A tensor kept as is on its device needs no bytes of the session's; one in host memory is a copy.
std::shared_ptr<Blob> State::store_in_place(const SavedTensor& tensor, const Segments& segments, const Target& target,
                                            Reserved& reserved) {
  const Site& site = *reserved.site;
  Outcome& outcome = reserved.outcome;
  if (reserved.choice.cause == Cause::caller) return exact_blob(site, {});
  if (tensor.role != Role::activation) return exact_blob(site, hold(outcome.after, target, reserved));
  Place place = place_for(site, outcome, target);
  if (place.tier == Tier::nowhere) {
    reserved.over_budget = outcome.after;
    return dropped_blob(site, tensor, outcome.spec);
  }
  if (place.tier == Tier::host) outcome.kind = SiteKind::encoded;
  if (outcome.kind == SiteKind::as_is) return exact_blob(site, std::move(place.held));
  return blob_with_room(site, tensor, outcome.spec, segments, std::move(place), target);
}

/// An encoding that others cannot read is entered under no key. Nobody has written one if no bytes were wanted.
void State::put_in_table(const Reserved& reserved, Written written) {
  Blob& blob = *reserved.made;
  if (written == Written::own && blob.wants_bytes()) blob.keys = {};
  blob.site = reserved.site;
  if (reserved.kept.blob == reserved.made) blob.kept_at = reserved.site->kept_at = now();
  shared.insert(blob);
}

/// Memory that several sites save is kept once, as the most faithful of them needs it. The first site cannot know what
/// the others need, so they teach it for the next step.
Want State::to_store(const Site& site, const Want& want, const Found& found) {
  const std::lock_guard lock(mutex_);
  if (is_tried(site)) return site.has_plane ? with_plane({Keep::encoded, trial_noise(Copy{}).spec, true}) : want;
  if (found.weaker == nullptr) return site.asked && serves(*site.asked, want) ? *site.asked : want;
  const Want both = found.weaker_want.not_negative ? with_plane(want) : want;
  ask(*found.weaker, found.weaker_want, both);
  // The mask is kept already; until there is a plan, nothing is kept twice.
  return plans_bytes() && !site.planned ? want : both;
}

/// Makes `source` serve, from the next step on, those who derive from it. The site whose memory they share need not
/// know of them.
void State::teach(const Blob& source, const Want& want) {
  const std::lock_guard lock(mutex_);
  ask(*source.site, source.want, want);
}

/// Requires the mutex. `own` is what `site` needs for itself.
void State::ask(Site& site, const Want& own, const Want& want) {
  if (serves(want, own) && (!site.asked || serves(want, *site.asked))) site.asked = want;
}

/// A blob that is freed during backward, or after it, was held; only one freed earlier counts as dropped.
void State::note_freed(const Blob& blob) {
  if (is_asked_ || blob.site == nullptr || blob.keys.step != step_) return;
  const std::lock_guard lock(mutex_);
  blob.site->is_freed = true;
}

/// A caller that has let go of a tensor once is not relied upon again.
void State::note_holder(const Blob& blob, bool is_held) {
  if (has_trial_ || blob.site == nullptr) return;
  auto& holder = blob.site->holder;
  if (is_held && holder == Holder::unknown) holder = Holder::caller;
  if (!is_held && holder == Holder::caller) holder = Holder::nobody;
}

void State::record(const SavedTensor& tensor, const Reserved& reserved) {
  Site& site = *reserved.site;
  const Outcome& outcome = reserved.outcome;
  const bool can_plan = reserved.choice.can_plan;
  const std::lock_guard lock(mutex_);
  if (site.step != step_) order_.push_back(&site);
  ++saves_;
  site.step = step_;
  ++site.saves;
  site.shape = tensor.view.shape;
  site.dtype = tensor.view.dtype;
  site.last = outcome;
  site.run = run_;
  if (budget_)
    site.held_at = static_cast<double>(held->now() + reserved.over_budget) - static_cast<double>(beside_bytes_);
  site.is_freed = false;
  site.row_elems = tensor.facts.row_elems;
  site.last_row = &effective_row(*site.row, tensor.facts);
  site.can_plan = can_plan;
  site.table_error = reserved.choice.table_error;
  site.usual = reserved.choice.usual;
  site.keeper = reserved.kept.blob ? reserved.kept.blob->site : nullptr;
  const auto* rotated = std::get_if<Rotated>(&outcome.spec);
  if (rotated != nullptr && rotated->mask_plane && !can_plan) site.has_plane = true;
}

}  // namespace actzip::session
