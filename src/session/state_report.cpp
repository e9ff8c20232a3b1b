// The report of a session about its last step.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "actzip/levels.hpp"
#include "actzip/registry.hpp"
#include "session/state.hpp"

namespace actzip::session {

namespace {

std::string codec_text(const Outcome& outcome) {
  return outcome.kind == SiteKind::encoded ? to_string(outcome.spec) : std::string(to_string(outcome.kind));
}

/// As far as the device has reported.
std::optional<SampleBits> sample_bits(const Site& site) {
  const auto summary = site.summaries.last();
  if (!summary) return std::nullopt;
  return SampleBits{.samples = site.last.samples,
                    .fewest = summary->fewest_bits,
                    .mean = summary->mean_bits,
                    .most = summary->most_bits,
                    .error = summary->error};
}

}  // namespace

/// Whether a site's memory was freed before backward, so that nothing waits for it. If nothing at all is left of a
/// step, it never had a backward; the report then says what it would have held.
bool State::is_dropped(const Site& site) const {
  const auto holds = [](const Site* other) { return other->keeper == other && !other->is_freed; };
  return site.is_freed && (is_asked_ || std::ranges::any_of(order_, holds));
}

/// A site's row covers all sites that share what it keeps.
void State::add_variance(const Site& keeper, SiteReport& row) const {
  for (const Site* site : order_) {
    if (site->keeper == &keeper && site->sensitivity)
      row.sensitivity = row.sensitivity.value_or(0.0) + *site->sensitivity;
  }
  if (!row.sensitivity) return;
  const bool is_exact = keeper.last.kind != SiteKind::encoded;
  const double error = row.sample_bits ? row.sample_bits->error : expected_error(keeper.last.spec);
  row.variance = is_exact ? 0.0 : *row.sensitivity * error;
}

/// Small tensors have no blob, and no times.
void State::add_times(const Site& site, SiteReport& row) const {
  const double kept = site.kept_at - step_began_;
  const double freed = site.freed_at - step_began_;
  if (kept < 0.0) return;
  row.kept_at = kept;
  if (freed >= kept) row.freed_at = freed;
}

/// Whether bytes leave their device, as far as is known. On the CPU, and where tensors are kept outside the session,
/// none do.
bool State::moves_bytes() const { return offload_ && (!has_stayed_ || offload_->stats().copied_out > 0); }

Report State::report() {
  Report report;
  report.preset = preset_;
  if (const Level* level = find_level(preset_); level != nullptr && level->to_host && !moves_bytes()) {
    report.runs_as = level->runs_as;
  }
  report.dry = options_.dry;
  report.live_bytes = live_bytes;
  report.index_overflow = overflow.raised();
  if (offload_) {
    const store::StoreStats stats = offload_->stats();
    report.offload = OffloadReport{.copied_out = stats.copied_out,
                                   .copied_in = stats.copied_in,
                                   .passed_over = stats.passed_over,
                                   .fetches = stats.fetches,
                                   .waits = stats.waits,
                                   .host_waits = stats.host_waits,
                                   .pinned_bytes = stats.pinned_bytes};
  }
  const std::lock_guard lock(mutex_);  // not before: a thread that has locked the store may wait for this one
  report.steps = step_;
  if (adaptation_.is_on()) report.plan = adaptation_.report();
  if (runs_again_ && report.plan && report.plan->predicted_bytes && planned_overlap_) {
    const auto at_once = static_cast<double>(*report.plan->predicted_bytes) * std::min(*planned_overlap_, 1.0);
    report.plan->predicted_bytes = static_cast<std::size_t>(at_once);
  }
  if (budget_) {
    report.budget = BudgetReport{.asked = options_.budget, .bytes = {}, .most_held = held->peak()};
    if (held->limit() != HeldMemory::kNoLimit) report.budget->bytes = held->limit();
  }
  for (const Site* site : order_) {
    SiteReport row{.site = site->name,
                   .module = site->module,
                   .op = site->op,
                   .slot = site->slot,
                   .ordinal = site->ordinal,
                   .use = site->use,
                   .shape = site->shape,
                   .dtype = site->dtype,
                   .kind = site->last.kind,
                   .codec = codec_text(site->last),
                   .kept_by = site->last.kept_by != nullptr ? *site->last.kept_by : std::string(),
                   .bytes_before = site->last.before,
                   .bytes_after = site->last.after,
                   .bytes_offloaded = site->left_step == site->step ? site->last.after : 0,
                   .reason = std::string(site->last.reason),
                   .saves = site->saves,
                   .cause = site->last.cause};
    if (is_dropped(*site)) {
      row.bytes_before = row.bytes_after = 0;
      row.reason = "freed before backward";
    }
    if (site->last.samples > 0) row.sample_bits = sample_bits(*site);
    add_variance(*site, row);
    if (row.bytes_after > 0) add_times(*site, row);
    report.bytes_before += row.bytes_before;
    report.bytes_after += row.bytes_after;
    report.bytes_offloaded += row.bytes_offloaded;
    report.sites.push_back(std::move(row));
  }
  return report;
}

}  // namespace actzip::session
