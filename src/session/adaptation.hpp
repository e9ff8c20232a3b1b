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

/// What bounds the choices for all sites alike.
struct PlanLimits {
  CodecFamily family;
  int max_bits = 0;         ///< 0: no limit
  bool has_budget = false;  ///< in bytes
};

/// What the size of something kept depends on.
struct KeptShape {
  DType dtype = DType::f32;
  Shape shape;
  std::int64_t row_elems = 0;
};

/// Of what `site` kept last.
KeptShape kept_shape(const Site& site);

/// Bytes of a tensor that `site` keeps by `spec`.
std::size_t kept_bytes(const Site& site, const KeptShape& shape, const CodecSpec& spec);

/// The least bits of one site in a plan.
Bits least_bits(const Site& site, const PlanLimits& limits);

/// The ways in which a plan may keep a tensor at `keeper`, from the fewest bits on; there is always one. With a plane
/// for the ReLU that kept it first, if somebody needs that.
std::vector<PlanChoice> choices_for(const Site& keeper, const KeptShape& shape, Bits least, bool plane,
                                    const PlanLimits& limits);

bool has_plane(const CodecSpec& spec);

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

  /// Plans for what `step` kept, the sites of one step, and tells the sites. Bytes are those of the whole step, what no
  /// plan can change included; without them the average bits are the budget. Throws Error(budget_too_small) if the
  /// bytes do not suffice.
  void plan(std::span<Site* const> step, std::optional<TotalBytes> bytes = std::nullopt);

  [[nodiscard]] const PlanLimits& limits() const noexcept { return limits_; }
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
  PlanLimits limits_;
  std::int64_t steps_ = 0;
  bool is_due_ = false;
  PlanReport report_;
};

}  // namespace actzip::session
