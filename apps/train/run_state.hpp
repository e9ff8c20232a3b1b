// The figures of a run, which a checkpoint holds as text beside its tensors. No torch.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "options.hpp"

namespace actzip::train {

struct Progress {
  std::int64_t step = 0;
  std::int64_t logged_step = 0;                            ///< of the last line
  double best = std::numeric_limits<double>::quiet_NaN();  ///< of the evaluation with the best choice()
  double best_choice = std::numeric_limits<double>::quiet_NaN();
  double last = std::numeric_limits<double>::quiet_NaN();
  std::int64_t evaluations_since_best = 0;
  double seconds = 0;         ///< of training alone
  std::int64_t examples = 0;  ///< trained with
};

struct RunState {
  Progress progress;
  std::string data;     ///< Task::data_identity()
  std::string session;  ///< Session::save_state(); empty without one
};

/// JSON, with the options that decide which numbers come out.
std::string text_of(const RunState& state, const Options& options);

/// The same from its text; messages name `path`. Throws WrongUsage if it is of a run with other options,
/// std::runtime_error if it is no such text.
RunState parse_run_state(const std::string& text, const Options& options, const std::string& path);

}  // namespace actzip::train
