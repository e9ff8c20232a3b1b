// Modules that run again in backward: what they keep is held a module at a time.
#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <variant>
#include <vector>

#include "actzip/policy.hpp"
#include "session/adaptation.hpp"
#include "session/state.hpp"

namespace actzip::session {

namespace {

/// A plan that assumed a share this much larger or smaller is made again.
constexpr double kOtherShare = 0.01;

}  // namespace

void State::resume_step() {
  const std::lock_guard lock(mutex_);
  ++run_;
}

void State::note_counted(SiteId site) {
  const std::lock_guard lock(mutex_);
  sites_[site.value].last.before = 0;
}

/// Requires the mutex. Of what is kept by the modules that ran again in the last step, a plan counts as much as the
/// largest of them keeps.
void State::note_what_ran_again() {
  std::unordered_map<int, double> runs;
  double sum = 0.0;
  double most = 0.0;
  for (const Site* site : order_) {
    if (site->run == 0) continue;
    double& run = runs[site->run];
    run += static_cast<double>(site->last.after);
    sum += static_cast<double>(site->last.after);
    most = std::max(most, run);
  }
  for (Site* site : order_) site->share_at_once = sum > 0.0 ? most / sum : 1.0;
}

/// Requires the mutex. Whether the step holds another share of what it keeps at once than the plan has assumed.
bool State::holds_other_share() const {
  if (!runs_again_ || !overlap_) return false;
  return std::abs(*overlap_ - planned_overlap_.value_or(1.0)) > kOtherShare * *overlap_;
}

void State::set_runs_again(bool any, bool changes) {
  const std::lock_guard lock(mutex_);
  runs_again_ = any;
  changes_next_ = changes;
}

/// Memory that several sites share is kept by the site that came first, for the one that needs most.
std::vector<SiteBytes> State::site_bytes() {
  const std::lock_guard lock(mutex_);
  std::unordered_map<const Site*, CodecSpec> wanted;
  for (const Site* site : order_) {
    if (site->keeper == nullptr || !site->can_plan || is_fixed(*site->keeper)) continue;
    const auto [found, is_new] = wanted.try_emplace(site->keeper, site->usual);
    if (!is_new && code_bits(site->usual, site->dtype) > code_bits(found->second, site->dtype))
      found->second = site->usual;
  }
  std::vector<SiteBytes> sites;
  for (const Site* site : order_) {
    const auto found = wanted.find(site);
    std::size_t bytes = site->last.after;
    if (bytes > 0 && found != wanted.end()) {
      auto* rotated = std::get_if<Rotated>(&found->second);
      if (rotated != nullptr) rotated->mask_plane = site->has_plane;
      bytes = kept_bytes(kept_shape(*site), found->second);
    }
    sites.push_back({site->module, site->op, site->last.before, least_bytes(*site, adaptation_.limits()), bytes});
  }
  return sites;
}

}  // namespace actzip::session
