// The figures of a run, which a checkpoint stores as text beside its tensors. Does not use torch.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "options.hpp"

namespace actzip::train {

struct Progress {
  std::int64_t step = 0;
  std::int64_t logged_step = 0;                            ///< step of the last logged line
  double best = std::numeric_limits<double>::quiet_NaN();  ///< value of the evaluation with the best choice()
  double best_choice = std::numeric_limits<double>::quiet_NaN();
  double last = std::numeric_limits<double>::quiet_NaN();
  std::int64_t evaluations_since_best = 0;
  double seconds = 0;         ///< spent on training alone
  std::int64_t examples = 0;  ///< number trained with
};

struct RunState {
  Progress progress;
  std::string data;     ///< Task::data_identity()
  std::string session;  ///< Session::save_state(); empty without one
};

/// Returns the state as JSON, with the options that affect the numbers of a run (Options::numbers).
std::string text_of(const RunState& state, const Options& options);

/// Parses what text_of() returns. Throws WrongUsage if it is from a run with other options, and std::runtime_error if
/// it is not such a text. Messages name `path`.
RunState parse_run_state(const std::string& text, const Options& options, const std::string& path);

}  // namespace actzip::train
