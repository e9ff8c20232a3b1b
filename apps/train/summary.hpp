// What a run says at its end. No torch.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "actzip/report.hpp"
#include "run_state.hpp"

namespace actzip::train {

/// What is known at the end, beside Progress and Report.
struct Summary {
  std::string metric;
  int digits = 0;                        ///< of the metric, behind the point
  bool is_chosen_on_validation = false;  ///< the best is
  std::string unit;                      ///< of examples
  std::string device;
  std::size_t peak_bytes = 0;
  std::size_t skipped = 0;  ///< records
};

/// A few lines for people.
std::string summary_text(const Options& options, const Progress& progress, const Report& report,
                         const Summary& summary);

/// The last line of the metrics.
nlohmann::ordered_json summary_line(const Progress& progress, const Report& report, const Summary& summary);

}  // namespace actzip::train
