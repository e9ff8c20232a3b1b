// What a session learns about gradients from observed steps and trials.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <utility>

#include "session/state.hpp"

namespace actzip::session {

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
