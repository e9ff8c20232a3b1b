// All that a run depends on from one step to the next, as one file.
#pragma once

#include <string>

#include "optimizer.hpp"
#include "run_state.hpp"

namespace actzip::train {

struct Checkpoint {
  RunState state;
  NamedTensors model;  ///< by the names of its state dict
  NamedTensors optimizer;
  NamedTensors others;  ///< random generators, sums
};

std::string checkpoint_path(const std::string& folder);

/// The name of the first tensor that holds a number which is not finite; empty if none does. Waits for the device.
std::string first_not_finite(const Checkpoint& checkpoint);

/// A file that torch.load() reads in Python: a dict of tensors. The one that was there before is there until the new
/// one is on the disk as a whole. Throws actzip::Error.
void write_checkpoint(const std::string& folder, const Checkpoint& checkpoint, const Options& options);

/// Throws WrongUsage if there is none, or it is of a run with other options; actzip::Error or std::runtime_error if it
/// cannot be read, or is no such file.
Checkpoint read_checkpoint(const std::string& folder, const Options& options);

/// Copies values by name into tensors that are there. Throws std::runtime_error for names that are missing.
void copy_into(const NamedTensors& targets, const NamedTensors& values, const std::string& what);

}  // namespace actzip::train
