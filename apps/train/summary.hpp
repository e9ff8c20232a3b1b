// The summary at the end of a run. Does not use torch.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "actzip/report.hpp"
#include "run_state.hpp"

namespace actzip::train {

/// Facts for the summary that are not in Progress or Report.
struct Summary {
  std::string metric;
  int digits = 0;                        ///< of the metric, after the decimal point
  bool is_chosen_on_validation = false;  ///< whether validation decides which epoch is best
  std::string unit;                      ///< of the examples: "images"
  std::string device;
  std::size_t peak_bytes = 0;
  std::size_t skipped = 0;  ///< number of records left out
};

/// Returns a few lines for people.
std::string summary_text(const Options& options, const Progress& progress, const Report& report,
                         const Summary& summary);

/// Returns the last line of the metrics file.
nlohmann::ordered_json summary_line(const Progress& progress, const Report& report, const Summary& summary);

}  // namespace actzip::train
