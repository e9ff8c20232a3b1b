// What a session says about its last step.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "actzip/levels.hpp"
#include "actzip/registry.hpp"
#include "session/state.hpp"

namespace actzip::session {

namespace {

std::string codec_text(const Outcome& outcome) {
  switch (outcome.kind) {
    case Outcome::Kind::as_is: return "as is";
    case Outcome::Kind::shape_only: return "shape only";
    case Outcome::Kind::recomputed: return "recomputed";
    case Outcome::Kind::shared: return "shared";
    case Outcome::Kind::derived: return "derived";
    case Outcome::Kind::encoded: break;
  }
  return to_string(outcome.spec);
}

/// As far as the device has said.
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

/// A site's row speaks for all that share what it keeps.
void State::add_variance(const Site& keeper, SiteReport& row) const {
  for (const Site* site : order_) {
    if (site->keeper == &keeper && site->sensitivity)
      row.sensitivity = row.sensitivity.value_or(0.0) + *site->sensitivity;
  }
  if (!row.sensitivity) return;
  const bool is_exact = keeper.last.kind != Outcome::Kind::encoded;
  const double error = row.sample_bits ? row.sample_bits->error : expected_error(keeper.last.spec);
  row.variance = is_exact ? 0.0 : *row.sensitivity * error;
}

Report State::report() {
  Report report;
  report.preset = preset_;
  if (const Level* level = find_level(preset_); level != nullptr && level->runs_as != level->name) {
    report.runs_as = level->runs_as;
  }
  report.dry = options_.dry;
  report.live_bytes = live_bytes;
  report.index_overflow = overflow.raised();
  const std::lock_guard lock(mutex_);
  report.steps = step_;
  if (adaptation_.is_on()) report.plan = adaptation_.report();
  for (const Site* site : order_) {
    SiteReport row{.site = site->name,
                   .module = site->module,
                   .op = site->op,
                   .slot = site->slot,
                   .ordinal = site->ordinal,
                   .shape = site->shape,
                   .dtype = site->dtype,
                   .codec = codec_text(site->last),
                   .bytes_before = site->last.before,
                   .bytes_after = site->last.after,
                   .reason = std::string(site->last.reason),
                   .saves = site->saves,
                   .cause = site->last.cause};
    if (site->last.samples > 0) row.sample_bits = sample_bits(*site);
    add_variance(*site, row);
    if (site->last.shared_with != nullptr) row.reason = fmt::format("kept by {}", *site->last.shared_with);
    report.bytes_before += row.bytes_before;
    report.bytes_after += row.bytes_after;
    report.sites.push_back(std::move(row));
  }
  return report;
}

}  // namespace actzip::session
