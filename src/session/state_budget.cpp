// How a session holds no more than its budget: which choice fits, what a plan may spend, and the error if nothing fits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "actzip/codec.hpp"
#include "actzip/error.hpp"
#include "actzip/registry.hpp"
#include "session/blob.hpp"
#include "session/bytes_text.hpp"
#include "session/state.hpp"

namespace actzip::session {

namespace {

/// Steps without a plan. The first shows which tensors are shared, the second how large everything is as a result.
constexpr std::int64_t kLearningSteps = 2;

/// The budget's share of what a device has left; the rest is for operators' own buffers and the gradients in flight.
constexpr double kShareOfWhatIsLeft = 0.75;

/// A plan leaves this share of a budget unused: allocators round sizes up, and a guard keeps a few tensors twice.
constexpr double kSpare = 0.02;

/// A step that keeps this much more or less than planned is planned again.
constexpr double kDrift = 0.01;

constexpr std::string_view kGrown = "fewer bits than planned: the step has grown";

KeptShape shape_of(const Site& site, const SavedTensor& tensor) {
  return {tensor.view.dtype, tensor.view.shape, tensor.facts.row_elems, &effective_row(*site.row, tensor.facts)};
}

/// Smaller blobs share pages with their neighbours, so moving them frees little.
constexpr std::size_t kWorthOffloading = 16384;

/// How fast a larger overlap of steps is forgotten: with accumulated gradients it comes and goes.
constexpr double kForget = 0.05;
/// The same where modules run again: what is held at once then also depends on their bits.
constexpr double kForgetAgain = 0.3;

struct StepBytes {
  double before = 0.0;
  double after = 0.0;  ///< of modules that run again, the largest counts
};

StepBytes bytes_of(std::span<Site* const> step) {
  StepBytes sum;
  for (const Site* site : step) {
    sum.before += static_cast<double>(site->last.before);
    sum.after += static_cast<double>(at_once(*site, site->last.after));
  }
  return sum;
}

/// Size of a tensor relative to the one before it at its site.
double growth_of(const Site& site, const SavedTensor& tensor) {
  const std::int64_t before = std::max<std::int64_t>(unique_elems(site.shape), 1);
  return static_cast<double>(unique_elems(tensor.view.shape)) / static_cast<double>(before);
}

/// The bytes that a site keeps according to the plan, of a tensor like its last one.
std::size_t planned_bytes(const Site& site) {
  if (site.last.after == 0 || is_fixed(site) || !site.asked) return site.last.after;
  return kept_bytes(kept_shape(site), site.asked->spec);
}

/// A place in a step, and what all sites behind it keep.
struct Behind {
  double held = 0.0;  ///< what was held there
  double after = 0.0;
  double least = 0.0;
  double planned = 0.0;

  /// The part of what is kept between an earlier place and this one that was still held here. The rest was freed: it
  /// belonged to modules that had run again.
  [[nodiscard]] double share_of(double after_earlier, double held_earlier) const {
    const double between = after_earlier - after;
    return between > 0.0 ? std::clamp((held - held_earlier) / between, 0.0, 1.0) : 0.0;
  }
};

}  // namespace

/// A blob of which nothing is kept. Restoring it throws.
std::shared_ptr<Blob> State::dropped_blob(const Site& site, const SavedTensor& tensor, const CodecSpec& spec) {
  Blob::Contents nothing;
  nothing.how = Keep::encoded;
  nothing.spec = spec;
  nothing.dtype = tensor.view.dtype;
  nothing.elems = unique_elems(tensor.view.shape);
  nothing.site = &site.name;
  nothing.is_dropped = true;
  return std::make_shared<Blob>(shared_from_this(), std::move(nothing));
}

/// A blob for memory of which nothing is encoded. It stands for that memory in the table of shares, and for its bytes
/// in a budget if they count.
std::shared_ptr<Blob> State::exact_blob(const Site& site, HeldMemory::Part held_bytes) {
  Blob::Contents contents;
  contents.site = &site.name;
  contents.held = std::move(held_bytes);
  return std::make_shared<Blob>(shared_from_this(), std::move(contents));
}

/// Keeps as much on the device as the budget allows: the blobs made last, because backward needs them first. The rest
/// goes to host memory, and so does everything as long as the budget is unknown. Bytes too small to make much room stay
/// while they fit.
State::Place State::place_for(const Site& site, const Outcome& outcome, const Target& target) {
  const std::size_t bytes = outcome.after;
  const bool is_on_cpu = target.stream.device().kind == DeviceKind::cpu;
  const bool is_taken = offload_ && offload_->takes(target.stream, target.memory);
  if (offload_ && !is_taken) has_stayed_ = true;
  const bool can_go = is_taken && bytes >= kWorthOffloading;
  if (!budget_) return {can_go ? Tier::host : Tier::device, {}};
  if (can_go && is_on_cpu && !fits_with_rest(site, bytes)) return {Tier::host, {}};
  if (HeldMemory::Part part = have_room(bytes, outcome.before, target)) {
    // On another device, the store decides what has to leave; until then the bytes count there, too.
    return {can_go && !is_on_cpu ? Tier::host : Tier::device, std::move(part)};
  }
  if (is_taken && is_on_cpu) return {Tier::host, {}};
  return {Tier::nowhere, {}};
}

bool State::fits_with_rest(const Site& site, std::size_t bytes) {
  if (held->limit() == HeldMemory::kNoLimit) return false;
  return static_cast<double>(bytes) + behind(site) <= static_cast<double>(held->room());
}

/// A share is of what the step would hold without compression, which may be more than in any step before. Returns
/// whether the limit has risen. `before` is what would be held of the next tensor.
bool State::raise_share(std::size_t before) {
  const auto* share = std::get_if<HeldShare>(&*budget_);
  if (share == nullptr || held->limit() == HeldMemory::kNoLimit) return false;
  const std::lock_guard lock(mutex_);
  const auto limit = static_cast<std::size_t>(share->value * (bytes_of(order_).before + static_cast<double>(before)));
  if (limit <= held->limit()) return false;
  held->set_limit(limit);
  return true;
}

/// Returns an empty part if there is no room, even after bytes that can leave the device have left.
HeldMemory::Part State::have_room(std::size_t bytes, std::size_t before, const Target& target) {
  HeldMemory::Part part = held->try_hold(bytes);
  if (!part && raise_share(before)) part = held->try_hold(bytes);
  const bool can_wait = !part && offload_ && offload_->takes(target.stream, target.memory);
  return can_wait ? offload_->make_room(bytes) : std::move(part);
}

double State::behind(const Site& site) {
  const std::lock_guard lock(mutex_);
  return site.planned_behind;
}

void State::note_over_budget(std::size_t bytes) {
  wanted_ = std::max(wanted_.load(), held->now() + bytes);
  is_over_budget_ = true;
}

/// Refuses options that contradict a budget, and sets the limit if it is known from the start.
void State::begin_budget() {
  if (!budget_) return;
  const auto refuse = [](std::string_view what) {
    throw Error(ErrorCode::invalid_spec, fmt::format("session: a budget with {}", what));
  };
  if (!offload_ && preset_ != "default") {
    refuse(fmt::format("preset '{}' (allowed: default, whose bits it chooses; others together with offload)", preset_));
  }
  if (!offload_ && options_.bits)
    refuse(fmt::format("bits {} (allowed: one of the two, or both with offload)", *options_.bits));
  if (!offload_ && by_sample_) refuse(fmt::format("adapt '{}' (allowed: layer, measured or nothing)", options_.adapt));
  if (options_.dry) refuse("dry (allowed: a step that compresses; its report shows the plan)");
  if (!options_.only.empty()) refuse("only (allowed: all sites)");
  if (const auto* bytes = std::get_if<HeldBytes>(&*budget_)) held->set_limit(bytes->value);
}

/// Sets the limit for a budget of what is left, once a tensor tells the device.
void State::look_what_is_left(const SavedTensor& tensor, const Stream& stream, Memory& memory) {
  if (!budget_ || !std::holds_alternative<WhatIsLeft>(*budget_) || tensor.role != Role::activation) return;
  if (held->limit() != HeldMemory::kNoLimit || step_ <= kLearningSteps) return;
  const auto left = static_cast<double>(memory.available_bytes(stream));
  held->set_limit(held->now() + static_cast<std::size_t>(left * kShareOfWhatIsLeft));
}

/// Requires the mutex. Called between two steps, with the sites of the step that has ended: how large it was, what
/// follows each of its sites, and whether the plan still fits.
void State::settle_budget() {
  if (!budget_ || trial_ || order_.empty()) return;
  note_what_ran_again();
  const StepBytes sum = bytes_of(order_);
  if (const auto* share = std::get_if<HeldShare>(&*budget_)) {
    // Of the largest step so far: an epoch may end with a small batch.
    const std::size_t before = held->limit() != HeldMemory::kNoLimit ? held->limit() : 0;
    held->set_limit(std::max(before, static_cast<std::size_t>(share->value * sum.before)));
  }
  // With checkpoints not all of a step is held at once; with accumulated gradients, more than one step is.
  const bool is_usual = plans_bytes() && !is_over_budget_ && !has_beside_ && sum.after > 0.0;
  if (is_usual) {
    const double now = static_cast<double>(held->peak()) / sum.after;
    const double forget = runs_again_ ? kForgetAgain : kForget;
    overlap_ = has_changed_ ? now : std::max(now, std::lerp(overlap_.value_or(now), now, forget));
  }
  const auto planned = adaptation_.report().predicted_bytes;
  const double drift = planned ? std::abs(sum.after - static_cast<double>(*planned)) : sum.after;
  const bool is_off_plan = drift > kDrift * sum.after || holds_other_share();
  is_over_budget_ = has_beside_ = false;
  wanted_ = 0;
  most_bits_ = kAnyBits;
  growth_ = 1.0;
  learning_steps_ = changes_next_ ? static_cast<int>(kLearningSteps) : std::max(learning_steps_ - 1, 0);
  has_changed_ = learning_steps_ > 0;
  if (std::exchange(changes_next_, false)) {
    for (Site& site : sites_) site.asked.reset();  // modules that ran again needed their arguments as they are
  }
  if (!has_changed_ && step_ >= kLearningSteps && (must_plan_ || is_off_plan)) plan_within_budget();
  note_what_comes_behind();
}

/// Requires the mutex. After a site follows the rest of its step, as far as it is held at once, and further steps if
/// several are held together.
void State::note_what_comes_behind() {
  const double overlap = overlap_.value_or(1.0);
  double after = 0.0;
  double least = 0.0;
  double planned = 0.0;
  Behind top;  // where the most is held in the rest of the step
  for (auto site = order_.rbegin(); site != order_.rend(); ++site) {
    const double share = runs_again_ ? top.share_of(after, (*site)->held_at) : std::min(overlap, 1.0);
    (*site)->least_behind = (least - top.least) * share;
    (*site)->planned_behind = (planned - top.planned) * share;
    if (runs_again_) (*site)->planned_behind = std::max((*site)->planned_behind, top.held - (*site)->held_at);
    if (runs_again_ && (*site)->held_at > top.held) top = {(*site)->held_at, after, least, planned};
    after += static_cast<double>((*site)->last.after);
    least += static_cast<double>(least_bytes(**site, adaptation_.limits()));
    planned += static_cast<double>(planned_bytes(**site));
  }
  const auto held_before = static_cast<double>(held->now());
  const auto further = [&](double step) { return std::max(0.0, (overlap - 1.0) * step - held_before); };
  for (Site* site : order_) {
    site->least_behind += further(least);
    site->planned_behind += further(planned);
  }
  knows_step_ = true;
}

/// Requires the mutex. If not even the fewest bits fit into a plan, sites continue with what they had; if that does not
/// fit either, backward reports it. But a site that was promised more bits must get them.
void State::plan_within_budget() {
  if (!plans_bytes() || held->limit() == HeldMemory::kNoLimit) return;
  const double whole = static_cast<double>(held->limit()) / std::max(overlap_.value_or(1.0), 1e-3);
  planned_overlap_ = overlap_;
  for (const double part : {1.0 - kSpare, 1.0}) {
    try {
      adaptation_.plan(order_, TotalBytes{static_cast<std::size_t>(whole * part)});
      must_plan_ = false;
      return;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::budget_too_small) throw;
    }
  }
  if (must_plan_) throw over_budget();
}

/// Requires the mutex. Chooses the fewest bits until there is a plan, and no more than this step still allows, so that
/// all savers of the same memory choose alike.
void State::choose_within_budget(const Site& site, const SavedTensor& tensor, Choice& choice) const {
  const DType dtype = tensor.view.dtype;
  const bool has_plan = site.planned && !has_changed_;
  if (has_plan && code_bits(choice.spec, dtype) <= most_bits_) return;
  const PlanLimits& limits = adaptation_.limits();
  const KeptShape shape = shape_of(site, tensor);
  const std::vector<PlanChoice> choices =
      choices_for(site, shape, least_bits(site, *shape.row, limits), /*plane=*/false, limits);
  auto best = choices.begin();
  while (has_plan && best + 1 != choices.end() && (best + 1)->bits <= most_bits_) ++best;
  choice.spec = best->spec;
  choice.how = Keep::encoded;
  choice.reason = has_plan ? kGrown : "the fewest bits, until there is a plan";
}

/// Returns the most faithful choice that leaves room for at least the fewest bits of what follows in the step: `have`
/// itself if the step is as planned.
Want State::fit_into_budget(const Site& site, const SavedTensor& tensor, const Want& have) {
  const std::lock_guard lock(mutex_);
  const KeptShape shape = shape_of(site, tensor);
  if (site.step >= 0) growth_ = std::max(growth_, growth_of(site, tensor));
  const double room = has_changed_ ? 0.0 : static_cast<double>(held->room()) - site.least_behind * growth_;
  if (static_cast<double>(kept_bytes(shape, have.spec)) <= room) return have;
  const PlanLimits& limits = adaptation_.limits();
  const bool plane = has_plane(have.spec) || site.has_plane;
  const std::vector<PlanChoice> choices = choices_for(site, shape, least_bits(site, *shape.row, limits), plane, limits);
  const int bits = code_bits(have.spec, shape.dtype);
  auto best = choices.begin();
  for (auto next = best + 1; next != choices.end() && next->bits < bits; ++next) {
    if (static_cast<double>(next->bytes) <= room) best = next;
  }
  if (best->bits >= bits) return have;
  most_bits_ = std::min(most_bits_, best->bits);
  return {Keep::encoded, best->spec, have.not_negative};
}

/// Counts bytes that can neither be encoded nor moved. If there is no room and they are kept, backward fails.
HeldMemory::Part State::hold(std::size_t bytes, const Target& target, Reserved& reserved) {
  if (!budget_) return {};
  HeldMemory::Part part = have_room(bytes, reserved.outcome.before, target);
  if (!part) reserved.over_budget = bytes;
  return part;
}

bool State::is_settled(SiteId id) {
  if (!plans_bytes()) return true;
  const Site& site = site_at(id);
  const std::lock_guard lock(mutex_);
  return site.planned.has_value() && !has_changed_;
}

std::shared_ptr<void> State::hold_beside(SiteId id, std::size_t bytes) {
  if (!budget_) return shared_from_this();
  if (!knows_step_) return nullptr;
  const Site& site = site_at(id);
  const std::lock_guard lock(mutex_);
  if (growth_ > 1.0 || static_cast<double>(bytes) > static_cast<double>(held->room()) - site.planned_behind)
    return nullptr;
  HeldMemory::Part part = held->try_hold(bytes);
  if (!part) return nullptr;
  has_beside_ = true;
  beside_bytes_ += bytes;
  struct Beside {
    std::shared_ptr<State> state;
    std::size_t bytes;
    HeldMemory::Part part;  // after the state, to which it belongs
    ~Beside() { state->beside_bytes_ -= bytes; }
  };
  return std::shared_ptr<Beside>(new Beside{shared_from_this(), bytes, std::move(part)});
}

/// Requires the mutex. Under a budget, a site whose few bits spoil a gradient cannot be kept as is. Asks for more bits
/// in the next plan, and returns whether there are more.
bool State::ask_for_more_bits(Site& site) {
  if (!plans_bytes()) return false;
  if (!site.planned || site.planned->how != Keep::encoded) return false;
  const int bits = code_bits(site.planned->spec, site.dtype);
  if (bits >= Affine::kMostBits) return false;
  site.least_bits = Bits(bits < Rotated::kMostBits ? bits + 1 : Affine::kMostBits);
  must_plan_ = true;
  return true;
}

/// Throws if this step did not fit. For the first step, that is known only when backward asks.
void State::check_budget() {
  if (!budget_) return;
  if (!is_over_budget_ && step_ > 1) return;
  const std::lock_guard lock(mutex_);
  // What runs again is not known yet, so the first step cannot be judged by its share.
  const auto* share = runs_again_ ? nullptr : std::get_if<HeldShare>(&*budget_);
  if (share != nullptr && step_ == 1 && !offload_) {
    const double limit = share->value * bytes_of(order_).before;
    if (static_cast<double>(held->peak()) > limit) is_over_budget_ = true;
    if (is_over_budget_) held->set_limit(static_cast<std::size_t>(limit));
  }
  if (is_over_budget_) throw over_budget();
}

/// Requires the mutex.
Error State::over_budget() const {
  constexpr std::size_t kMostNamed = 4;
  std::vector<std::pair<std::size_t, const Site*>> sizes;
  double least = 0.0;
  for (const Site* site : order_) {
    sizes.emplace_back(least_bytes(*site, adaptation_.limits()), site);
    least += static_cast<double>(at_once(*site, sizes.back().first));
  }
  const auto needed_at_once = static_cast<std::size_t>(least * std::min(overlap_.value_or(1.0), 1.0));
  const std::size_t needed = std::max({needed_at_once, wanted_.load(), held->limit() + 1});
  std::ranges::stable_sort(sizes, std::greater(), &std::pair<std::size_t, const Site*>::first);
  std::string names;
  for (std::size_t i = 0; i < std::min(sizes.size(), kMostNamed); ++i) {
    const auto& [bytes, site] = sizes[i];
    names += fmt::format("{}'{}' {}{}", i == 0 ? "" : ", ", site->name, bytes_text(bytes),
                         is_fixed(*site) ? fmt::format(" ({})", to_string(site->last.kind)) : "");
  }
  if (sizes.size() > kMostNamed) names += fmt::format(", and {} more", sizes.size() - kMostNamed);
  return {ErrorCode::budget_too_small,
          fmt::format(
              "session: a budget of {} cannot be kept: this step would hold {}, {} more (allowed: a larger budget, or "
              "smaller batches). With the fewest bits: {}",
              bytes_text(held->limit()), bytes_text(needed), bytes_text(needed - held->limit()), names)};
}

}  // namespace actzip::session
