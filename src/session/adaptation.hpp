// Gives bits to the sites that matter: turns what is known about the sites of a session into a plan. docs/plan.md has
// the mathematics.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "actzip/plan.hpp"
#include "actzip/session.hpp"

namespace actzip::session {

struct Site;

/// SessionOptions::adapt, parsed.
struct Adapt {
  bool by_layer = false;
  bool by_sample = false;
  bool is_measured = false;
};

/// Throws Error(invalid_spec) for any other text.
Adapt parse_adapt(const std::string& text);

/// The fewest bits for a sample, or for a site in a plan.
Bits least_bits(const PolicyRow& row);

/// Limits on the choices of all sites.
struct PlanLimits {
  CodecFamily family;
  int max_bits = 0;         ///< 0: no limit
  bool has_budget = false;  ///< the budget is in bytes
};

/// What the size of a kept tensor depends on, besides its codec.
struct KeptShape {
  DType dtype = DType::f32;
  Shape shape;
  std::int64_t row_elems = 0;
  const PolicyRow* row = nullptr;  ///< the effective one
};

/// The shape of what `site` kept last.
KeptShape kept_shape(const Site& site);

/// Whether neither a plan nor a budget can change what the site keeps.
bool is_fixed(const Site& site);

/// The fewest bytes that a site can keep.
std::size_t least_bytes(const Site& site, const PlanLimits& limits);

/// Of bytes that a site keeps, those that count where a step holds the most. Modules that run again are held one after
/// another, so together they count as much as one.
std::size_t at_once(const Site& site, std::size_t bytes);

/// Bytes of a tensor that is kept by `spec`.
std::size_t kept_bytes(const KeptShape& shape, const CodecSpec& spec);

/// The fewest bits that a plan may give `site`, for a tensor whose effective row is `row`.
Bits least_bits(const Site& site, const PolicyRow& row, const PlanLimits& limits);

/// Returns the ways in which a plan may keep a tensor at `keeper`, from the fewest bits on; never empty. `plane`: with
/// the mask plane for the ReLU that kept the tensor first.
std::vector<PlanChoice> choices_for(const Site& keeper, const KeptShape& shape, Bits least, bool plane,
                                    const PlanLimits& limits);

bool has_plane(const CodecSpec& spec);

/// Returns the bits for the policy; nothing if a plan distributes them. Throws Error(invalid_spec) for options that
/// contradict each other.
std::optional<Bits> policy_bits(const SessionOptions& options);

/// Whether a plan may replace the policy's choice: it keeps values in few bits, and no rule of the user asks for that.
bool can_plan(const PolicyRow& row, const Want& want);

/// Returns the noise by which a site is tried out when its memory is kept as `held`.
TrialNoise trial_noise(const CodecSpec& held);

/// Decides when to observe, and makes plans. Not thread-safe: the state's mutex guards it and the sites.
class Adaptation {
 public:
  explicit Adaptation(const SessionOptions& options);

  [[nodiscard]] bool is_on() const noexcept { return is_on_; }

  void begin_step();
  [[nodiscard]] bool wants_observation() const noexcept { return is_due_ && !is_measured_; }
  [[nodiscard]] bool wants_measurement() const noexcept { return is_due_ && is_measured_; }

  /// The step could not be observed: tries again after an interval.
  void skip_observation() noexcept { is_due_ = false; }

  /// Makes a plan for what the sites in `step`, those of one step, have kept, and tells the sites. `bytes` is for the
  /// whole step, including what no plan can change; without it, the average bits are the budget. Throws
  /// Error(budget_too_small) if the bytes do not suffice.
  void plan(std::span<Site* const> step, std::optional<TotalBytes> bytes = std::nullopt);

  [[nodiscard]] const PlanLimits& limits() const noexcept { return limits_; }
  void set_gradient_variance(double variance);
  void set_measured_variance(double variance) { report_.measured_variance = variance; }

  /// The report of the last plan.
  [[nodiscard]] const PlanReport& report() const noexcept { return report_; }

  /// Its progress, to continue from in another session.
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
