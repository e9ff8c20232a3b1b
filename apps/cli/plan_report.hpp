// The output of `actzip plan`: a table, JSON and a picture.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "actzip/plan.hpp"
#include "report_file.hpp"

namespace actzip::cli {

struct PlanResult {
  std::string report_path;
  ReportFile report;
  std::size_t without_sensitivity = 0;  ///< sites planned with `assumed_per_element`
  double assumed_per_element = 0.0;
  std::vector<PlanItem> items;  ///< one for each site of the report
  std::string budget;           ///< as printed: "2 bits an element"
  Plan plan;
  double uniform_variance = 0.0;  ///< of uniform bits at the plan's size in bytes

  [[nodiscard]] const PlanChoice& choice(std::size_t site) const { return items[site].choices[plan.choices[site]]; }
  [[nodiscard]] double variance(std::size_t site) const { return items[site].sensitivity * choice(site).error; }
};

std::string plan_text(const PlanResult& result);
std::string plan_json(const PlanResult& result);
/// Draws the bits of each site as bars and the sensitivity per element as a line.
std::string plan_svg(const PlanResult& result);

/// Names the choice as a session does: the codec, or "as is".
std::string kept_as(const PlanChoice& choice);

}  // namespace actzip::cli
