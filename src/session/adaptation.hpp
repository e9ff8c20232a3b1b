// Bits where they matter: what is known about the sites of a session becomes a plan. docs/plan.md has the mathematics.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "actzip/plan.hpp"
#include "actzip/session.hpp"

namespace actzip::session {

struct Site;

/// What `adapt` asks for.
struct Adapt {
  bool by_layer = false;
  bool by_sample = false;
  bool is_measured = false;
};

/// Throws Error(invalid_spec) for what it cannot mean.
Adapt parse_adapt(const std::string& text);

/// The least bits of a sample, or of a site in a plan.
Bits least_bits(const PolicyRow& row);

/// The bits for the policy: none if a plan spends them. Throws Error(invalid_spec) for options that contradict.
std::optional<Bits> policy_bits(const SessionOptions& options);

/// Whether a plan may take the place of what the policy chose: values in few bits, and no user asked for them so.
bool can_plan(const PolicyRow& row, const Choice& choice);

/// What a site that may be planned is tried out with, when its memory is kept as `held`.
TrialNoise trial_noise(const CodecSpec& held);

/// When to look and what came of it. Not thread-safe: the state's mutex guards it, and the sites.
class Adaptation {
 public:
  explicit Adaptation(const SessionOptions& options);

  [[nodiscard]] bool is_on() const noexcept { return is_on_; }

  void begin_step();
  [[nodiscard]] bool wants_observation() const noexcept { return is_due_ && !is_measured_; }
  [[nodiscard]] bool wants_measurement() const noexcept { return is_due_ && is_measured_; }

  /// Nothing could be observed: not before the next interval.
  void skip_observation() noexcept { is_due_ = false; }

  /// Plans for what `step` kept, the sites of one step, whose sensitivities are new, and tells the sites.
  void plan(std::span<Site* const> step);
  void set_gradient_variance(double variance);
  void set_measured_variance(double variance) { report_.measured_variance = variance; }

  /// As of the last plan.
  [[nodiscard]] const PlanReport& report() const noexcept { return report_; }

  /// Where it stands, to go on from there in another session.
  struct Progress {
    std::int64_t steps = 0;
    bool is_due = false;
    PlanReport report = {};
  };
  [[nodiscard]] Progress progress() const { return {steps_, is_due_, report_}; }
  void set_progress(const Progress& progress) {
    steps_ = progress.steps;
    is_due_ = progress.is_due;
    report_ = progress.report;
  }

 private:
  bool is_on_ = false;
  bool is_measured_ = false;
  std::int64_t interval_ = 0;
  CodecFamily family_;
  int max_bits_ = 0;
  std::int64_t steps_ = 0;
  bool is_due_ = false;
  PlanReport report_;
};

}  // namespace actzip::session
