#include "schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace actzip::train {

namespace {

constexpr double kCycleStart = 1.0 / 25.0;
constexpr double kCycleEnd = kCycleStart / 1e4;
constexpr double kCycleWarmUp = 0.3;
const std::vector<double> kMilestones = {0.5, 0.75};

/// Interpolates from `from` to `to` along half a cosine, for `part` from 0 to 1.
double half_cosine(double from, double to, double part) {
  return to + (from - to) * (0.5 + 0.5 * std::cos(std::numbers::pi * std::clamp(part, 0.0, 1.0)));
}

double one_cycle(double warm_up, std::int64_t step, std::int64_t steps) {
  const double last = static_cast<double>(std::max<std::int64_t>(steps - 1, 1));
  const double peak = std::max(warm_up * static_cast<double>(steps) - 1.0, 0.0);
  const auto now = static_cast<double>(step);
  if (now < peak) return half_cosine(kCycleStart, 1.0, now / peak);
  return half_cosine(1.0, kCycleEnd, last > peak ? (now - peak) / (last - peak) : 1.0);
}

double after_milestones(const Schedule& schedule, std::int64_t step, std::int64_t steps) {
  double factor = 1.0;
  for (const double milestone : schedule.milestones.empty() ? kMilestones : schedule.milestones) {
    if (static_cast<double>(step) >= milestone * static_cast<double>(steps)) factor *= schedule.factor;
  }
  return factor;
}

}  // namespace

double rate_factor(const Schedule& schedule, std::int64_t step, std::int64_t steps, std::int64_t steps_of_epoch) {
  if (schedule.kind == "cosine-by-epoch") step -= step % steps_of_epoch;
  if (schedule.kind == "one-cycle") {
    return one_cycle(schedule.warm_up < 0 ? kCycleWarmUp : schedule.warm_up, step, steps);
  }
  const auto rising = std::llround(std::max(schedule.warm_up, 0.0) * static_cast<double>(steps));
  if (step < rising) return static_cast<double>(step + 1) / static_cast<double>(rising);
  if (schedule.kind == "step") return after_milestones(schedule, step, steps);
  if (schedule.kind == "constant" || rising >= steps) return 1.0;
  return half_cosine(1.0, 0.0, static_cast<double>(step - rising) / static_cast<double>(steps - rising));
}

}  // namespace actzip::train
