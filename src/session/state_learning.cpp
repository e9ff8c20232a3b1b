// What a session learns about gradients: from a guard, observed steps and trials.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <utility>

#include "actzip/levels.hpp"
#include "session/state.hpp"

namespace actzip::session {

/// By default, a guard does not interfere with a preset of one codec or a level of another system.
bool State::is_guarded() const {
  if (options_.dry || !options_.only.empty()) return false;
  return options_.guard.value_or(find_level(preset_) == nullptr && !policy_.is_uniform());
}

bool State::note_look(SiteId id, bool spoils_gradient) {
  Site& site = site_at(id);
  if (spoils_gradient && ask_for_more_bits(site)) return false;
  site.look = spoils_gradient ? Look::spoilt : Look::fine;
  return spoils_gradient;
}

bool State::was_looked_at(SiteId site) { return site_at(site).look != Look::none; }

void State::note_observed() {
  const std::lock_guard lock(mutex_);
  is_observed_ = true;
}

bool State::wants_observation() {
  const std::lock_guard lock(mutex_);
  return trial_ ? trial_->observe : adaptation_.wants_observation();
}

bool State::wants_measurement() {
  const std::lock_guard lock(mutex_);
  return !trial_ && adaptation_.wants_measurement();
}

void State::skip_observation() {
  const std::lock_guard lock(mutex_);
  adaptation_.skip_observation();
}

bool State::learn(const Observation& observation) {
  const auto is_sound = [](double value) { return std::isfinite(value) && value >= 0.0; };
  if (!std::ranges::all_of(observation.sites, is_sound, &SiteSensitivity::value)) return false;
  const std::lock_guard lock(mutex_);
  for (const SiteSensitivity& found : observation.sites) {
    auto& known = sites_[found.site.value].sensitivity;
    known = known ? std::lerp(*known, found.value, observation.weight) : found.value;
  }
  if (observation.gradient_variance && is_sound(*observation.gradient_variance)) {
    adaptation_.set_gradient_variance(*observation.gradient_variance);
  }
  if (plans_bytes()) {
    plan_within_budget();
  } else {
    adaptation_.plan(order_);
  }
  return true;
}

void State::set_trial(std::optional<Trial> trial) {
  const std::lock_guard lock(mutex_);
  trial_ = std::move(trial);
  has_trial_ = trial_.has_value();
}

void State::set_measured_variance(double variance) {
  const std::lock_guard lock(mutex_);
  adaptation_.set_measured_variance(variance);
}

bool State::adds_much() {
  const std::lock_guard lock(mutex_);
  return adaptation_.is_on() && adaptation_.report().adds_much();
}

}  // namespace actzip::session
