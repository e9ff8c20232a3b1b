#include "plan_report.hpp"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <variant>

#include "actzip/version.hpp"
#include "table.hpp"

namespace actzip::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Formats "1.2 MiB".
std::string bytes_text(std::size_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits.at(unit));
}

double share(double part, double whole) { return whole > 0.0 ? part / whole : 0.0; }

std::string sites_text(const PlanResult& result) {
  constexpr auto kRight = Table::Align::right;
  Table table({{"site"}, {"elements", kRight}, {"kept as"}, {"bits", kRight}, {"bytes", kRight}, {"variance", kRight}});
  for (std::size_t i = 0; i < result.items.size(); ++i) {
    const PlanChoice& choice = result.choice(i);
    table.add({result.report.sites[i].name, fmt::format("{}", result.items[i].elems), kept_as(choice),
               fmt::format("{}", choice.bits), bytes_text(choice.bytes),
               fmt::format("{:.1f} %", 100 * share(result.variance(i), result.plan.variance))});
  }
  return table.text();
}

std::string proof_text(const Plan& plan) {
  if (plan.optimal) return "no plan within the budget has less";
  return fmt::format("no plan within the budget has less than {:.6g} of that",
                     share(plan.least_variance, plan.variance));
}

std::string notes_text(const PlanResult& result) {
  std::string text;
  if (result.without_sensitivity > 0) {
    fmt::format_to(std::back_inserter(text),
                   "{} of {} sites have no sensitivity in the report: {:.4g} was taken for each element{}\n",
                   result.without_sensitivity, result.items.size(), result.assumed_per_element,
                   result.without_sensitivity < result.items.size() ? ", the mean of the others" : "");
  }
  if (result.report.other_sites > 0) {
    fmt::format_to(std::back_inserter(text),
                   "not planned: {} sites (masks, indices, shared, computed again, as they are), {}\n",
                   result.report.other_sites, bytes_text(result.report.other_bytes));
  }
  return text;
}

Json site_json(const PlanResult& result, std::size_t i) {
  const PlanChoice& choice = result.choice(i);
  return {{"site", result.report.sites[i].name},
          {"elements", result.items[i].elems},
          {"sensitivity", result.items[i].sensitivity},
          {"sensitivity_assumed", !result.report.sites[i].sensitivity.has_value()},
          {"codec", kept_as(choice)},
          {"bits", choice.bits},
          {"bytes", choice.bytes},
          {"error", choice.error},
          {"variance", result.variance(i)}};
}

}  // namespace

std::string kept_as(const PlanChoice& choice) {
  return std::holds_alternative<Copy>(choice.spec) ? "as is" : to_string(choice.spec);
}

std::string plan_text(const PlanResult& result) {
  const Plan& plan = result.plan;
  return fmt::format(
      "{}\n"
      "{} sites, {}, {:.3f} bits an element (budget: {})\n"
      "predicted variance {:.4g}: {}\n"
      "uniform bits at the same bytes: {:.4g}; the plan has {:.3f} of it\n{}",
      sites_text(result), result.items.size(), bytes_text(plan.bytes), plan.average_bits, result.budget, plan.variance,
      proof_text(plan), result.uniform_variance, share(plan.variance, result.uniform_variance), notes_text(result));
}

std::string plan_json(const PlanResult& result) {
  Json json{{"program", "actzip plan"},
            {"version", ACTZIP_VERSION_STRING},
            {"report", result.report_path},
            {"budget", result.budget},
            {"bytes", result.plan.bytes},
            {"average_bits", result.plan.average_bits},
            {"variance", result.plan.variance},
            {"least_variance", result.plan.least_variance},
            {"optimal", result.plan.optimal},
            {"uniform_variance", result.uniform_variance},
            {"other_bytes", result.report.other_bytes},
            {"sites", Json::array()}};
  for (std::size_t i = 0; i < result.items.size(); ++i) json["sites"].push_back(site_json(result, i));
  // The report's path is part of the output and need not be valid UTF-8.
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

}  // namespace actzip::cli
