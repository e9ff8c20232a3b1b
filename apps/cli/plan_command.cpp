// `actzip plan`: chooses the bits of each site from the report of a session.
#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "actzip/actzip.hpp"
#include "commands.hpp"
#include "output_file.hpp"
#include "plan_report.hpp"
#include "report_file.hpp"

namespace actzip::cli {
namespace {

/// The options as typed.
struct PlanOptions {
  std::string report;
  std::optional<double> bits;
  std::optional<std::uint64_t> bytes;
  std::string json;
  std::string svg;
};

PlanItem make_item(const PlannedSite& site, double assumed_per_element) {
  const auto elems = static_cast<double>(site.elems);
  try {
    return {site.elems, site.sensitivity.value_or(elems * assumed_per_element),
            plan_choices(site.dtype, site.elems, site.mask_plane)};
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", site.name, error.what()));
  }
}

/// The sensitivity per element assumed for sites without one: the mean of the others, or 1 if there are none.
double mean_sensitivity(const ReportFile& report) {
  double sum = 0.0;
  double elems = 0.0;
  for (const PlannedSite& site : report.sites) {
    if (!site.sensitivity) continue;
    sum += *site.sensitivity;
    elems += static_cast<double>(site.elems);
  }
  return elems > 0.0 ? sum / elems : 1.0;
}

/// A budget in bytes covers everything the step holds, so the bytes of sites that are not planned are subtracted.
Budget plan_budget(const PlanOptions& options, const ReportFile& report) {
  if (options.bits) return AverageBits{*options.bits};
  if (*options.bytes < report.other_bytes) {
    throw Error(ErrorCode::budget_too_small, fmt::format("{} bytes are too few: sites that are not planned keep {}",
                                                         *options.bytes, report.other_bytes));
  }
  return TotalBytes{*options.bytes - report.other_bytes};
}

PlanResult make_result(const PlanOptions& options) {
  PlanResult result;
  result.report_path = options.report;
  result.report = read_report(options.report);
  result.assumed_per_element = mean_sensitivity(result.report);
  for (const PlannedSite& site : result.report.sites) {
    result.items.push_back(make_item(site, result.assumed_per_element));
    if (!site.sensitivity) ++result.without_sensitivity;
  }
  const Budget budget = plan_budget(options, result.report);
  result.budget = options.bits ? fmt::format("{} bits an element", *options.bits)
                               : fmt::format("{} bytes, {} of them for these sites", *options.bytes,
                                             std::get<TotalBytes>(budget).value);
  result.plan = solve_plan(result.items, budget);
  result.uniform_variance = uniform_variance(result.items, TotalBytes{result.plan.bytes});
  return result;
}

int run_plan(const PlanOptions& options) {
  std::optional<OutputFile> json;
  std::optional<OutputFile> svg;
  if (!options.json.empty() && options.json != "-") json.emplace(options.json);
  if (!options.svg.empty()) svg.emplace(options.svg);

  const PlanResult result = make_result(options);
  fmt::print("{}", options.json == "-" ? plan_json(result) : plan_text(result));
  if (json) json->commit(plan_json(result));
  if (svg) svg->commit(plan_svg(result));
  for (const std::string& path : {options.json, options.svg}) {
    if (!path.empty() && path != "-") fmt::print(stderr, "written to {}\n", path);
  }
  return 0;
}

void check(const PlanOptions& options) {
  if (options.bits.has_value() == options.bytes.has_value()) {
    throw CLI::ValidationError(options.bits ? "--bits and --bytes were both given: choose one budget"
                                            : "no budget was given: write --bits 2 or --bytes 4GiB");
  }
  if (!options.json.empty() && options.json == options.svg) {
    throw CLI::ValidationError(fmt::format("--json and --svg are the same file: {}", options.json));
  }
}

}  // namespace

void add_plan_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("plan", "Choose bits for each site of a report, within a budget.");
  const auto options = std::make_shared<PlanOptions>();
  command->add_option("REPORT", options->report, "The report of a session as JSON: Report.to_json()")->required();
  command->add_option("--bits", options->bits, "Budget: average bits of a code, such as 2 or 1.5")
      ->check(CLI::Range(0.0, 64.0));
  command->add_option("--bytes", options->bytes, "Budget: bytes of all that the step keeps, such as 4GiB")
      ->transform(CLI::AsSizeValue(true))
      ->type_name("SIZE");
  command->add_option("--json", options->json, "Also write the plan to this file; '-' prints it instead of the table")
      ->type_name("FILE");
  command->add_option("--svg", options->svg, "Draw bits and sensitivity by site into this file")->type_name("FILE");
  command->footer(
      "Sites kept by rotated or affine get rotated with 1 to 4 bits, affine with 8, or stay as they are, so that the\n"
      "sum of sensitivity * error is least. A site without a 'sensitivity' in the report gets the mean of the others,\n"
      "element by element. docs/plan.md explains it.\n\n"
      "Examples:\n"
      "  actzip plan report.json --bits 2\n"
      "  actzip plan report.json --bits 1.5 --json plan.json --svg plan.svg\n"
      "  actzip plan report.json --bytes 4GiB");
  command->callback([&action, options] {
    check(*options);
    action = [options] { return run_plan(*options); };
  });
}

}  // namespace actzip::cli
