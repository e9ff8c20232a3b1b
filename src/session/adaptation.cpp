#include "session/adaptation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_map>
#include <variant>

#include "actzip/codec.hpp"
#include "actzip/error.hpp"
#include "actzip/registry.hpp"
#include "session/state.hpp"

namespace actzip::session {

namespace {

constexpr double kFewestBits = 1.0;
constexpr double kMostBits = Affine::kMostBits;
constexpr double kDefaultBits = 2.0;
constexpr double kLeastError = 1e-6;         // of the table's codec: none that a plan may change is exact
constexpr std::int64_t kObserveEvery = 200;  // an observed step takes as long as two or three others
constexpr std::int64_t kMeasureEvery = 1000;

/// The first step to observe: the step before it learns what is shared.
constexpr std::int64_t kFirst = 2;

/// Memory that is kept once, and all sites that save it.
struct Holding {
  Site* keeper = nullptr;
  std::vector<Site*> sites;  ///< those that a plan may choose for
  std::optional<double> sensitivity;
};

/// Groups the sites by keeper, in the order of the step. Memory that a site needs exactly is out of a plan's reach.
std::vector<Holding> holdings(std::span<Site* const> step) {
  std::vector<Holding> found;
  std::unordered_map<const Site*, std::size_t> place;
  for (Site* site : step) {
    if (!site->can_plan || site->keeper == nullptr) continue;
    if (!site->keeper->can_plan && !site->keeper->has_plane) continue;
    const auto [at, is_new] = place.try_emplace(site->keeper, found.size());
    if (is_new) found.push_back({.keeper = site->keeper, .sites = {}, .sensitivity = {}});
    Holding& holding = found[at->second];
    holding.sites.push_back(site);
    if (site->sensitivity) holding.sensitivity = holding.sensitivity.value_or(0.0) + *site->sensitivity;
  }
  return found;
}

std::int64_t elems_of(const Holding& holding) { return unique_elems(holding.keeper->shape); }

/// The sensitivity that is assumed before any is known: as if the table balanced what each element adds.
double prior_of(const Holding& holding) {
  double sum = 0.0;
  for (const Site* site : holding.sites) sum += 1.0 / std::max(site->table_error, kLeastError);
  return sum * static_cast<double>(elems_of(holding));
}

/// Known sensitivities relative to their priors. Unknown ones are assumed to differ from their priors by the same
/// factor.
double known_beside_prior(std::span<const Holding> all) {
  double known = 0.0;
  double prior = 0.0;
  for (const Holding& holding : all) {
    if (!holding.sensitivity) continue;
    known += *holding.sensitivity;
    prior += prior_of(holding);
  }
  return prior > 0.0 ? known / prior : 1.0;
}

Want want_of(const CodecSpec& spec, bool not_negative) {
  return {std::holds_alternative<Copy>(spec) ? Keep::as_is : Keep::encoded, spec, not_negative};
}

std::vector<PlanChoice> choices_for(const Holding& holding, const PlanLimits& limits) {
  Bits least(1);
  for (const Site* site : holding.sites) least = std::max(least, least_bits(*site, *site->last_row, limits));
  const Site& keeper = *holding.keeper;
  std::vector<PlanChoice> choices = choices_for(keeper, kept_shape(keeper), least, !keeper.can_plan, limits);
  for (PlanChoice& choice : choices) choice.bytes = at_once(keeper, choice.bytes);
  return choices;
}

/// The bytes of a step that no plan can change.
std::size_t fixed_bytes(std::span<Site* const> step, std::span<const Holding> planned) {
  std::size_t sum = 0;
  for (const Site* site : step) sum += at_once(*site, site->last.after);
  for (const Holding& holding : planned) sum -= at_once(*holding.keeper, holding.keeper->last.after);
  return sum;
}

/// Returns what a plan for `bytes` of a step may spend on the planned items. Throws Error(budget_too_small) if less
/// than nothing is left.
TotalBytes left_of(TotalBytes bytes, std::size_t fixed) {
  if (fixed <= bytes.value) return {bytes.value - fixed};
  throw Error(ErrorCode::budget_too_small,
              fmt::format("session: {} of {} bytes are out of reach of a plan", fixed, bytes.value));
}

/// Returns the budget, or the least that the choices allow if that is more.
AverageBits affordable(double budget, std::span<const PlanItem> items) {
  double least = 0.0;
  double elems = 0.0;
  for (const PlanItem& item : items) {
    const auto cheapest = std::ranges::min_element(item.choices, {}, &PlanChoice::bits);
    least += static_cast<double>(item.elems) * cheapest->bits;
    elems += static_cast<double>(item.elems);
  }
  return {std::max(budget, least / elems)};
}

/// Returns `spec` without its plane, which belongs to the ReLU that kept it first.
CodecSpec without_plane(CodecSpec spec) {
  if (auto* rotated = std::get_if<Rotated>(&spec)) rotated->mask_plane = false;
  return spec;
}

void tell(const Holding& holding, const CodecSpec& spec) {
  for (Site* site : holding.sites) site->planned = want_of(without_plane(spec), false);
  holding.keeper->asked = want_of(spec, has_plane(spec));
}

/// Returns `spec` with the rounding of the table's codec. What the table rounds without a bias stays so.
CodecSpec rounded_like(const CodecSpec& of_table, CodecSpec spec) {
  const auto* own = std::get_if<Affine>(&of_table);
  auto* affine = std::get_if<Affine>(&spec);
  if (own != nullptr && affine != nullptr) affine->rounding = own->rounding;
  return spec;
}

/// Returns the bits that the table gets until there is a plan: the budget, rounded up.
std::optional<Bits> bits_before_a_plan(double budget) {
  if (budget <= kDefaultBits) return std::nullopt;
  const int whole = static_cast<int>(std::ceil(budget));
  return Bits(whole <= Rotated::kMostBits ? whole : Affine::kMostBits);
}

/// Whether no codec has so many bits: sites then get more or less.
bool is_average_bits(const std::optional<double>& bits) { return bits && !spec_of_bits(*bits); }

}  // namespace

bool has_plane(const CodecSpec& spec) {
  const auto* rotated = std::get_if<Rotated>(&spec);
  return rotated != nullptr && rotated->mask_plane;
}

Adapt parse_adapt(const std::string& text) {
  if (text.empty()) return {};
  if (text == "layer") return {.by_layer = true};
  if (text == "measured") return {.by_layer = true, .is_measured = true};
  if (text == "sample") return {.by_sample = true};
  if (text == "sample+layer") return {.by_layer = true, .by_sample = true};
  if (text == "sample+measured") return {.by_layer = true, .by_sample = true, .is_measured = true};
  throw Error(
      ErrorCode::invalid_spec,
      fmt::format("session: adapt '{}' (allowed: layer, measured, sample, sample+layer, sample+measured, or nothing)",
                  text));
}

/// Where the table gives 4 bits, harm grows faster than the squared error, so 1 bit is not offered.
Bits least_bits(const PolicyRow& row) {
  const auto* rotated = std::get_if<Rotated>(&row.spec);
  return Bits(rotated != nullptr && rotated->bits == Bits(4) ? 2 : 1);
}

Bits least_bits(const Site& site, const PolicyRow& row, const PlanLimits& limits) {
  // Where the table gives 8 bits, few bits do more harm than their error says, and in its first steps a budget has no
  // plan that could know better.
  constexpr Bits kOfMany(4);
  if (site.has_plane) return site.least_bits;  // other sites read the values that it keeps
  if (!limits.has_budget && row.use == Use::attention_operand) return Bits(Affine::kMostBits);
  const bool has_many = std::holds_alternative<Affine>(row.spec);
  const Bits least = limits.has_budget && has_many ? kOfMany : least_bits(row);
  return std::max(least, site.least_bits);
}

std::size_t at_once(const Site& site, std::size_t bytes) {
  return site.run == 0 ? bytes : static_cast<std::size_t>(site.share_at_once * static_cast<double>(bytes));
}

bool is_fixed(const Site& site) { return !site.can_plan && !site.has_plane; }

std::size_t least_bytes(const Site& site, const PlanLimits& limits) {
  if (site.last.after == 0 || is_fixed(site)) return site.last.after;
  return choices_for(site, kept_shape(site), least_bits(site, *site.last_row, limits), !site.can_plan, limits)
      .front()
      .bytes;
}

KeptShape kept_shape(const Site& site) { return {site.dtype, site.shape, site.row_elems, site.last_row}; }

std::size_t kept_bytes(const KeptShape& shape, const CodecSpec& spec) {
  const Segments segments = row_segments(*shape.row, spec, shape.shape, shape.row_elems);
  return encoded_bytes(spec, shape.dtype, shape.shape, segments);
}

std::vector<PlanChoice> choices_for(const Site& keeper, const KeptShape& shape, Bits least, bool plane,
                                    const PlanLimits& limits) {
  std::vector<PlanChoice> choices = plan_choices(shape.dtype, unique_elems(shape.shape), plane);
  int fewest = least.value;
  if (limits.max_bits > 0) {
    fewest = std::min(fewest, limits.max_bits);
    std::erase_if(choices, [&](const PlanChoice& choice) { return choice.bits > limits.max_bits; });
  }
  std::erase_if(choices, [&](const PlanChoice& choice) { return choice.bits < fewest; });
  const auto samples = keeper.summaries.observed();
  for (PlanChoice& choice : choices) {  // samples that share the bits of a choice have less error
    choice.spec = in_family(rounded_like(shape.row->spec, choice.spec), limits.family);
    choice.bytes = kept_bytes(shape, choice.spec);
    choice.error = samples && std::holds_alternative<Rotated>(choice.spec) ? samples->error_at[choice.bits - 1]
                                                                           : expected_error(choice.spec);
  }
  return choices;
}

std::optional<Bits> policy_bits(const SessionOptions& options) {
  const Adapt adapt = parse_adapt(options.adapt);
  if (options.use_gradient && (!adapt.by_sample || options.num_samples < 1)) {
    throw Error(ErrorCode::invalid_spec,
                fmt::format("session: use_gradient with adapt '{}' and num_samples {} (allowed: with sample, and 1 or "
                            "more samples)",
                            options.adapt, options.num_samples));
  }
  if (options.max_bits < 0) {
    throw Error(ErrorCode::invalid_spec, fmt::format("session: max_bits {} (allowed: 1 or more)", options.max_bits));
  }
  if (options.interval < 0) {
    throw Error(ErrorCode::invalid_spec, fmt::format("session: interval {} (allowed: 1 or more)", options.interval));
  }
  if (options.bits && !(*options.bits >= kFewestBits && *options.bits <= kMostBits)) {
    throw Error(ErrorCode::invalid_spec,
                fmt::format("session: bits {} (allowed: {}; or an average from {} to {}, for a plan)", *options.bits,
                            usual_bits(), kFewestBits, kMostBits));
  }
  const bool is_average = is_average_bits(options.bits);
  const bool leaves_nothing = options.preset == "exact" && adapt.by_sample;
  if (!adapt.by_layer && !is_average && !leaves_nothing) {
    return options.bits ? std::optional(Bits(static_cast<int>(*options.bits))) : std::nullopt;
  }
  if (options.preset != "default") {
    throw Error(ErrorCode::invalid_spec,
                fmt::format("session: preset '{}' leaves nothing to plan (allowed: default)", options.preset));
  }
  return bits_before_a_plan(options.bits.value_or(kDefaultBits));
}

bool can_plan(const PolicyRow& row, const Want& want) {
  if (want.how != Keep::encoded || row.treatment == Treatment::ruled) return false;
  if (std::holds_alternative<Rotated>(want.spec)) return true;
  const auto* affine = std::get_if<Affine>(&want.spec);
  return affine != nullptr && !has_floor(*affine);
}

TrialNoise trial_noise(const CodecSpec& held) {
  const CodecSpec spec = Rotated{.bits = Bits(2), .mask_plane = has_plane(held)};
  const double held_error = std::holds_alternative<Copy>(held) ? 0.0 : expected_error(held);
  // An unbiased restored tensor has a square larger by its own relative error.
  return {spec, expected_error(spec) * (1.0 + held_error), held_error};
}

Adaptation::Adaptation(const SessionOptions& options) {
  const bool is_average = is_average_bits(options.bits);
  const Adapt adapt = parse_adapt(options.adapt);
  const bool has_budget = !options.budget.empty() && options.offload.empty();
  is_on_ = adapt.by_layer || is_average || has_budget;
  is_measured_ = adapt.is_measured;
  interval_ = options.interval > 0 ? options.interval : is_measured_ ? kMeasureEvery : kObserveEvery;
  report_.budget_bits = options.bits.value_or(kDefaultBits);
  limits_ = {parse_family(options.codec), options.max_bits, has_budget};
}

void Adaptation::begin_step() {
  ++steps_;
  if (!is_on_) return;
  // Gradients change faster early on: before the interval sets in, each step that is a power of two is observed.
  const bool is_early = steps_ == kFirst || (!is_measured_ && steps_ > kFirst && steps_ < interval_ &&
                                             std::has_single_bit(static_cast<std::uint64_t>(steps_)));
  if (is_early || steps_ % interval_ == 0) is_due_ = true;
}

void Adaptation::plan(std::span<Site* const> step, std::optional<TotalBytes> bytes) {
  const std::vector<Holding> all = holdings(step);
  const std::size_t fixed = fixed_bytes(step, all);
  if (all.empty() && !bytes) return;
  is_due_ = false;
  const double scale = known_beside_prior(all);
  std::vector<PlanItem> items;
  for (const Holding& holding : all) {
    items.push_back({.elems = elems_of(holding),
                     .sensitivity = holding.sensitivity.value_or(scale * prior_of(holding)),
                     .choices = choices_for(holding, limits_)});
  }
  const Budget budget = bytes ? Budget(left_of(*bytes, fixed)) : Budget(affordable(report_.budget_bits, items));
  const Plan plan = solve_plan(items, budget);
  for (std::size_t i = 0; i < all.size(); ++i) tell(all[i], items[i].choices[plan.choices[i]].spec);
  ++report_.plans;
  report_.average_bits = plan.average_bits;
  report_.predicted_variance = plan.variance;
  report_.predicted_bytes = fixed + plan.bytes;
  report_.measured_variance.reset();
}

void Adaptation::set_gradient_variance(double variance) { report_.gradient_variance = variance; }

}  // namespace actzip::session
