// When a guard checks sites, and what the session does about those that make too much of a gradient noise.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <variant>

#include "actzip/levels.hpp"
#include "actzip/registry.hpp"
#include "actzip/use.hpp"
#include "session/state.hpp"

namespace actzip::session {

namespace {

/// The part of a gradient's squared norm that may be noise. A lost gradient has 1.
constexpr double kMostNoise = 0.9;
/// The same for products with linear operands. Their noise does not grow in the node, but the gradient of a weight sums
/// over many rows, and where these cancel, noise remains.
constexpr double kMostOfSums = 0.3;
/// With few bits there is more noise even where nothing cancels: as much as the codec's error.
constexpr double kMostOfError = 3.0;
/// The same for codecs that always round a value alike. Their errors do not average out over steps.
constexpr double kMostBias = 0.1;
/// Above this, the gradient of a weight is zero but for rounding, and so says nothing.
constexpr double kNoGradient = 1e4;
/// More bits are to bring the noise down to this part, but products get 4 at most: near the end of training gradients
/// of a whole data set cancel by themselves, and all errors are large in relation.
constexpr double kAim = 0.1;
/// What more bits may take of what a step would hold uncompressed.
constexpr double kMostRaised = 0.1;

constexpr std::int64_t kFirstRound = 50;
constexpr std::int64_t kLongestPause = 1000;

/// The step with which the latest round of checks began, at or before `step`.
std::int64_t round_at(std::int64_t step) {
  if (step >= kLongestPause) return step - step % kLongestPause;
  std::int64_t round = 0;
  for (std::int64_t next = kFirstRound; next <= step; next *= 2) round = next;
  return round;
}

double most_noise(const Site& site, const CodecSpec& held) {
  if (!traits(held).unbiased) return kMostBias;
  return enters_linearly(site.use) ? std::max(kMostOfSums, kMostOfError * expected_error(held)) : kMostNoise;
}

}  // namespace

/// By default, a guard does not interfere with a preset of one codec or a level of another system.
bool State::is_guarded() const {
  if (options_.dry || !options_.only.empty()) return false;
  return options_.guard.value_or(find_level(preset_) == nullptr && !policy_.is_uniform());
}

/// Once backward of this step has begun, other threads may run its graph. Plans find out for themselves what matters.
bool State::wants_look(SiteId id) {
  if (is_asked_) return false;
  const Site& site = site_at(id);
  if (site.look == Look::none) return true;
  return site.look != Look::spoilt && site.look_step < look_round();
}

std::int64_t State::look_round() const { return adapts() ? 0 : round_at(step_); }

bool State::was_looked_at(SiteId site) { return site_at(site).look != Look::none; }

Remedy State::note_look(SiteId id, double noise) {
  Site& site = site_at(id);
  const std::lock_guard lock(mutex_);
  const bool is_first = site.look == Look::none;
  const Site& keeper = site.keeper != nullptr ? *site.keeper : site;
  Remedy remedy = Remedy::none;
  if (!(noise <= most_noise(site, keeper.last.spec))) {
    if (plans_bytes() && ask_for_more_bits(site)) return Remedy::more_bits;
    const bool is_lost = !std::isfinite(noise) || (is_first && !enters_linearly(site.use));
    remedy = is_lost ? Remedy::exact : raise(site, noise);
  }
  if (remedy == Remedy::exact) {
    site.look = Look::spoilt;
    site.raised.reset();
  } else if (site.look == Look::none) {
    site.look = Look::fine;
  }
  site.look_step = step_.load();
  return remedy;
}

/// Requires the mutex. Chooses the fewest bits that leave little noise, as far as there is room.
Remedy State::raise(Site& site, double noise) {
  const Site& keeper = site.keeper != nullptr ? *site.keeper : site;
  const CodecSpec& held = keeper.last.spec;
  const bool is_linear = enters_linearly(site.use);
  if (is_linear && noise > kNoGradient) return Remedy::none;
  if (!session::can_plan(*site.last_row, {Keep::encoded, held})) {
    return is_linear ? Remedy::none : Remedy::exact;
  }
  const double error = expected_error(held);
  const auto noise_at = [&](double with_error) { return noise * with_error / error; };
  const bool is_enough = is_linear && noise_at(expected_error(Rotated{.bits = Bits(Rotated::kMostBits)})) <= 1.0;
  auto choices = choices_for(keeper, kept_shape(keeper), site.least_bits, has_plane(held), adaptation_.limits());
  std::erase_if(choices, [&](const PlanChoice& choice) {
    return choice.error >= error || (is_enough && choice.bits > Rotated::kMostBits);
  });
  if (choices.empty()) return Remedy::none;
  auto better = std::ranges::find_if(choices, [&](const PlanChoice& choice) { return noise_at(choice.error) <= kAim; });
  choices.erase(better == choices.end() ? better : better + 1, choices.end());
  while (!choices.empty() && !is_room_to_raise(site, choices.back().spec)) choices.pop_back();
  if (choices.empty()) return Remedy::no_room;
  CodecSpec spec = choices.back().spec;
  if (std::holds_alternative<Copy>(spec)) return Remedy::exact;
  if (auto* rotated = std::get_if<Rotated>(&spec)) rotated->mask_plane = false;  // it belongs to who asked for it
  site.raised = spec;
  site.look = Look::noisy;
  return Remedy::more_bits;
}

/// Requires the mutex. Memory that several sites save counts once.
bool State::is_room_to_raise(const Site& site, const CodecSpec& spec) const {
  std::unordered_map<const Site*, double> more;
  const auto count = [&](const Site& each, const CodecSpec& raised) {
    const KeptShape shape = kept_shape(each);
    const double usual = static_cast<double>(kept_bytes(shape, each.usual));
    double& known = more[each.keeper];
    known = std::max(known, static_cast<double>(kept_bytes(shape, raised)) - usual);
  };
  double before = 0.0;
  for (const Site* each : order_) {
    before += static_cast<double>(each->last.before);
    if (each->raised && each != &site) count(*each, *each->raised);
  }
  count(site, spec);
  double sum = 0.0;
  for (const auto& [keeper, bytes] : more) sum += bytes;
  return sum <= kMostRaised * before;
}

}  // namespace actzip::session
