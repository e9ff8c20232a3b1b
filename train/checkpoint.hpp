// All that a run depends on from one step to the next, as one file.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "optimizer.hpp"

namespace actzip::train {

/// Figures of a run, beside its tensors.
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

struct Checkpoint {
  Progress progress;
  std::string data;     ///< Task::data_identity()
  std::string session;  ///< Session::save_state(); empty without one
  NamedTensors model;   ///< by the names of its state dict
  NamedTensors optimizer;
  NamedTensors others;  ///< random generators, sums
};

std::string checkpoint_path(const std::string& folder);

/// A file that torch.load() reads in Python: a dict of tensors. The one that was there before is there until the new
/// one is on the disk as a whole. Throws actzip::Error.
void write_checkpoint(const std::string& folder, const Checkpoint& checkpoint, const Options& options);

/// Throws WrongUsage if there is none, or it is of a run with other options; actzip::Error if it cannot be read.
Checkpoint read_checkpoint(const std::string& folder, const Options& options);

/// Copies values by name into tensors that are there. Throws std::runtime_error for names that are missing.
void copy_into(const NamedTensors& targets, const NamedTensors& values, const std::string& what);

}  // namespace actzip::train
