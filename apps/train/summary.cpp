#include "summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "metrics.hpp"

namespace actzip::train {

namespace {

double step_seconds(const Progress& progress) {
  return progress.seconds / static_cast<double>(std::max<std::int64_t>(progress.step, 1));
}

double examples_per_second(const Progress& progress) {
  return static_cast<double>(progress.examples) / std::max(progress.seconds, 1e-9);
}

}  // namespace

std::string summary_text(const Options& options, const Progress& progress, const Report& report,
                         const Summary& summary) {
  std::string text = fmt::format("{} on {}, preset {}: {} steps on {}\n", options.model, options.data, options.preset,
                                 progress.step, summary.device);
  if (std::isfinite(progress.last)) {
    text +=
        fmt::format("  {:<9} best {:.{}f}{}, last {:.{}f}\n", summary.metric, progress.best, summary.digits,
                    summary.is_chosen_on_validation ? " (chosen on validation)" : "", progress.last, summary.digits);
  }
  if (report.bytes_after > 0) {
    text += fmt::format("  held      {} where {} {}: {:.1f} times smaller\n", bytes_text(report.bytes_after),
                        options.keep == "layers" ? "these layers hold in plain training" : "plain training holds",
                        bytes_text(report.bytes_before),
                        static_cast<double>(report.bytes_before) / static_cast<double>(report.bytes_after));
  }
  text += fmt::format("  step      {:.1f} ms, {:.0f} {}/s\n", 1e3 * step_seconds(progress),
                      examples_per_second(progress), summary.unit);
  return text + fmt::format("  memory    {} at most\n", bytes_text(summary.peak_bytes));
}

nlohmann::ordered_json summary_line(const Progress& progress, const Report& report, const Summary& summary) {
  return {{"kind", "summary"},
          {"step", progress.step},
          {"metric", summary.metric},
          {"best", progress.best},
          {"last", progress.last},
          {"held_bytes", report.bytes_after},
          {"plain_bytes", report.bytes_before},
          {"step_seconds", step_seconds(progress)},
          {"examples_per_second", examples_per_second(progress)},
          {"peak_memory_bytes", summary.peak_bytes},
          {"skipped", summary.skipped}};
}

}  // namespace actzip::train
