#include "actzip/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "session/bytes_text.hpp"

namespace actzip {

namespace {

using session::bytes_text;

std::string shape_text(const Shape& shape) {
  std::string text;
  for (int d = 0; d < shape.rank; ++d) text += fmt::format("{}{}", d == 0 ? "" : "x", shape.sizes[d]);
  return text;
}

std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string json_number(const std::optional<double>& number) {
  return number ? fmt::format("{:.6g}", *number) : "null";
}

std::string json_count(const std::optional<std::size_t>& number) {
  return number ? fmt::format("{}", *number) : "null";
}

std::string json_plan(const std::optional<PlanReport>& plan) {
  if (!plan) return "null";
  return fmt::format(
      R"({{"budget_bits": {}, "average_bits": {}, "plans": {}, "predicted_bytes": {}, "predicted_variance": {}, )"
      R"("measured_variance": {}, "gradient_variance": {}}})",
      plan->budget_bits, plan->average_bits, plan->plans, json_count(plan->predicted_bytes),
      json_number(plan->predicted_variance), json_number(plan->measured_variance),
      json_number(plan->gradient_variance));
}

std::string json_offload(const std::optional<OffloadReport>& offload) {
  if (!offload) return "null";
  return fmt::format(
      R"({{"copied_out": {}, "copied_in": {}, "passed_over": {}, "fetches": {}, "waits": {}, "host_waits": {}, )"
      R"("pinned_bytes": {}}})",
      offload->copied_out, offload->copied_in, offload->passed_over, offload->fetches, offload->waits,
      offload->host_waits, offload->pinned_bytes);
}

std::string json_budget(const std::optional<BudgetReport>& budget) {
  if (!budget) return "null";
  return fmt::format(R"({{"asked": {}, "bytes": {}, "most_held": {}}})", json_string(budget->asked),
                     json_count(budget->bytes), budget->most_held);
}

std::string json_samples(const std::optional<SampleBits>& bits) {
  if (!bits) return "null";
  return fmt::format(R"({{"samples": {}, "fewest": {}, "mean": {:.6g}, "most": {}, "error": {:.6g}}})", bits->samples,
                     bits->fewest, bits->mean, bits->most, bits->error);
}

std::string json_statistics(const std::optional<SampleStatistics>& statistics) {
  if (!statistics) return "null";
  return fmt::format(R"({{"samples": {}, "bytes": {}}})", statistics->samples, statistics->bytes);
}

std::string reason_text(const SiteReport& site) {
  return site.kept_by.empty() ? site.reason : fmt::format("kept by {}", site.kept_by);
}

std::string samples_text(const std::optional<SampleBits>& bits) {
  if (!bits) return "";
  return fmt::format("; {} samples with {} to {} bits, {:.2f} on average", bits->samples, bits->fewest, bits->most,
                     bits->mean);
}

std::string variance_text(std::string_view what, const std::optional<double>& variance) {
  return fmt::format("{} {}", what, variance ? fmt::format("{:.3g}", *variance) : "not known");
}

std::string budget_text(const BudgetReport& budget) {
  const std::string bytes = budget.bytes ? bytes_text(*budget.bytes) : "not known yet";
  return fmt::format("budget {}: {}; at most {} were held at any time of the step\n", budget.asked, bytes,
                     bytes_text(budget.most_held));
}

std::string plan_text(const PlanReport& plan, bool has_budget) {
  if (plan.plans == 0 && has_budget) return "no plan yet: the fewest bits, until sizes are known\n";
  if (plan.plans == 0) return fmt::format("no plan yet for {} bits on average: the table decides\n", plan.budget_bits);
  std::string text = fmt::format(
      "plan {}: {:.2f} bits on average{}; variance of the gradient, by its square: {}", plan.plans, plan.average_bits,
      has_budget ? "" : fmt::format(" of {}", plan.budget_bits), variance_text("predicted", plan.predicted_variance));
  if (plan.measured_variance) text += variance_text(", measured", plan.measured_variance);
  text += variance_text(", its own over batches", plan.gradient_variance) + '\n';
  if (plan.adds_much()) {
    text += "compression adds more than 10 % to the gradient's own variance: give more bits, or larger batches\n";
  }
  return text;
}

std::string json_site(const SiteReport& site) {
  std::string sizes;
  for (int d = 0; d < site.shape.rank; ++d) sizes += fmt::format("{}{}", d == 0 ? "" : ", ", site.shape.sizes[d]);
  return fmt::format(
      R"({{"site": {}, "module": {}, "op": {}, "slot": {}, "ordinal": {}, "use": "{}", "shape": [{}], "dtype": "{}", )"
      R"("kind": "{}", "codec": {}, "kept_by": {}, "bytes_before": {}, "bytes_after": {}, "bytes_offloaded": {}, "reason": {}, "saves": {}, "sensitivity": {}, "variance": {}, "sample_bits": {}, "cause": "{}", "kept_at": {}, "freed_at": {}}})",
      json_string(site.site), json_string(site.module), json_string(site.op), json_string(site.slot), site.ordinal,
      to_string(site.use), sizes, to_string(site.dtype), to_string(site.kind), json_string(site.codec),
      json_string(site.kept_by), site.bytes_before, site.bytes_after, site.bytes_offloaded, json_string(site.reason),
      site.saves, json_number(site.sensitivity), json_number(site.variance), json_samples(site.sample_bits),
      to_string(site.cause), json_number(site.kept_at), json_number(site.freed_at));
}

/// Rows of the short table.
constexpr std::size_t kMostRows = 20;

std::vector<const SiteReport*> every_site(const Report& report) {
  std::vector<const SiteReport*> rows;
  for (const SiteReport& site : report.sites) rows.push_back(&site);
  return rows;
}

/// Those that keep the most bytes first: what is still held is what can be saved yet.
std::vector<const SiteReport*> largest_sites(const Report& report) {
  std::vector<const SiteReport*> rows = every_site(report);
  std::erase_if(rows,
                [](const SiteReport* site) { return site->cause == Cause::parameter || site->cause == Cause::small; });
  std::ranges::stable_sort(rows, [](const SiteReport* a, const SiteReport* b) {
    return std::pair(a->bytes_after, a->bytes_before) > std::pair(b->bytes_after, b->bytes_before);
  });
  if (rows.size() > kMostRows) rows.resize(kMostRows);
  return rows;
}

std::string count_text(std::size_t count) { return fmt::format("{} site{}", count, count == 1 ? "" : "s"); }

std::string causes_text(const Report& report) {
  std::string causes;
  std::ptrdiff_t total = 0;
  for (const Cause cause : kCauses) {
    const auto count = cause == Cause::none ? 0 : std::ranges::count(report.sites, cause, &SiteReport::cause);
    if (count == 0) continue;
    causes += fmt::format("{}{} {}", total == 0 ? "" : ", ", count, to_string(cause));
    total += count;
  }
  return total == 0 ? "" : fmt::format(", {} as is ({})", total, causes);
}

std::string offload_text(const OffloadReport& offload) {
  if (offload.copied_out == 0) return "";
  return fmt::format("in {} fetches so far {} have come back of {} that were copied to the host; {} fetches waited\n",
                     offload.fetches, bytes_text(offload.copied_in), bytes_text(offload.copied_out), offload.waits);
}

std::string ratio_text(const Report& report) {
  if (report.bytes_before == 0) return "";
  if (report.bytes_after == 0) return " (nothing is kept)";
  return fmt::format(" ({:.1f} times smaller)", report.ratio());
}

std::string offloaded_text(const Report& report) {
  return report.bytes_offloaded == 0 ? "" : fmt::format(", {} of it offloaded", bytes_text(report.bytes_offloaded));
}

std::string kept_as_text(const SiteReport& site) {
  return site.bytes_offloaded == 0 ? site.codec : site.codec + ", offloaded";
}

std::string summary_text(const Report& report) {
  const std::string level =
      report.runs_as.empty() ? "" : fmt::format(", run as '{}' without its host part", report.runs_as);
  return fmt::format("preset '{}'{}, step {}: {} {} -> {}{}{}; {}{}\n", report.preset, level, report.steps,
                     report.dry ? "would hold" : "held", bytes_text(report.bytes_before),
                     bytes_text(report.bytes_after), ratio_text(report), offloaded_text(report),
                     count_text(report.sites.size()), causes_text(report));
}

std::string table_text(const std::vector<const SiteReport*>& rows, bool with_variances) {
  if (rows.empty()) return "";
  std::size_t name_width = 4;
  std::size_t shape_width = 5;
  std::size_t codec_width = 7;
  for (const SiteReport* site : rows) {
    name_width = std::max(name_width, site->site.size());
    shape_width = std::max(shape_width, shape_text(site->shape).size());
    codec_width = std::max(codec_width, kept_as_text(*site).size());
  }
  const auto line = [&](const auto& name, const auto& shape, auto dtype, const auto& codec, const auto& before,
                        const auto& after, const std::string& variances, const auto& reason) {
    return fmt::format("{:<{}}  {:<{}}  {:<4}  {:<{}}  {:>10}  {:>10}  {}{}\n", name, name_width, shape, shape_width,
                       dtype, codec, codec_width, before, after, with_variances ? variances : "", reason);
  };
  const auto two = [](const auto& a, const auto& b) { return fmt::format("{:>11}  {:>9}  ", a, b); };
  const auto number = [](const auto& value) { return value ? fmt::format("{:.2e}", *value) : std::string("-"); };
  std::string text = line("site", "shape", "type", "kept as", "before", "after", two("sensitivity", "variance"), "why");
  for (const SiteReport* site : rows) {
    text += line(site->site, shape_text(site->shape), to_string(site->dtype), kept_as_text(*site),
                 bytes_text(site->bytes_before), bytes_text(site->bytes_after),
                 two(number(site->sensitivity), number(site->variance)),
                 reason_text(*site) + samples_text(site->sample_bits));
  }
  return text;
}

std::string empty_text(const Report& report) {
  if (report.steps == 0) return "no step has begun: enter the session around forward\n";
  return "no tensor was saved inside the scope: forward must run in it, of a model with parameters that require "
         "gradients, and not under no_grad or inference_mode\n";
}

std::string hidden_text(const Report& report, const std::vector<const SiteReport*>& rows) {
  if (rows.size() == report.sites.size()) return "";
  std::size_t before = report.bytes_before;
  std::size_t after = report.bytes_after;
  for (const SiteReport* site : rows) {
    before -= site->bytes_before;
    after -= site->bytes_after;
  }
  return fmt::format("{} hidden, {} -> {}; to_text(all=True) shows every site\n",
                     count_text(report.sites.size() - rows.size()), bytes_text(before), bytes_text(after));
}

}  // namespace

std::string_view to_string(SiteKind kind) noexcept {
  switch (kind) {
    case SiteKind::as_is: break;
    case SiteKind::shape_only: return "shape only";
    case SiteKind::recomputed: return "recomputed";
    case SiteKind::shared: return "shared";
    case SiteKind::derived: return "derived";
    case SiteKind::encoded: return "encoded";
  }
  return "as is";
}

std::string_view to_string(Cause cause) noexcept {
  switch (cause) {
    case Cause::none: break;
    case Cause::parameter: return "parameter";
    case Cause::small: return "small";
    case Cause::type: return "type";
    case Cause::rule: return "rule";
    case Cause::policy: return "policy";
    case Cause::guard: return "guard";
    case Cause::caller: return "caller";
  }
  return "";
}

bool PlanReport::adds_much() const {
  constexpr double kMuch = 0.1;
  const auto& added = measured_variance ? measured_variance : predicted_variance;
  return added && gradient_variance && *added > kMuch * *gradient_variance;
}

double Report::ratio() const {
  if (bytes_after == 0) return bytes_before == 0 ? 1.0 : std::numeric_limits<double>::infinity();
  return static_cast<double>(bytes_before) / static_cast<double>(bytes_after);
}

std::string Report::to_text(bool all) const {
  std::string text = summary_text(*this);
  if (budget) text += budget_text(*budget);
  if (offload) text += offload_text(*offload);
  if (plan) text += plan_text(*plan, budget.has_value());
  if (sample_statistics) {
    text += fmt::format("gradients of {} samples are known in {}\n", sample_statistics->samples,
                        bytes_text(sample_statistics->bytes));
  }
  if (index_overflow) text += "an index lay outside the bound of its operator: its gradient was wrong\n";
  if (sites.empty()) text += empty_text(*this);
  const std::vector<const SiteReport*> rows = all ? every_site(*this) : largest_sites(*this);
  return text + table_text(rows, plan.has_value()) + hidden_text(*this, rows);
}

std::string Report::to_json() const {
  std::string rows;
  for (const SiteReport& site : sites) rows += (rows.empty() ? "\n  " : ",\n  ") + json_site(site);
  return fmt::format(
      R"({{"preset": {}, "runs_as": {}, "dry": {}, "steps": {}, "bytes_before": {}, "bytes_after": {}, "bytes_offloaded": {}, )"
      R"("live_bytes": {}, )"
      R"("index_overflow": {}, "plan": {}, "budget": {}, "offload": {}, "sample_statistics": {}, "sites": [{}]}})",
      json_string(preset), json_string(runs_as), dry, steps, bytes_before, bytes_after, bytes_offloaded, live_bytes,
      index_overflow, json_plan(plan), json_budget(budget), json_offload(offload), json_statistics(sample_statistics),
      rows);
}

}  // namespace actzip
