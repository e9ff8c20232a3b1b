// Writes and reads checkpoints: one file with everything that the next step of a run depends on.
#pragma once

#include <string>

#include "optimizer.hpp"
#include "run_state.hpp"

namespace actzip::train {

struct Checkpoint {
  RunState state;
  NamedTensors model;  ///< with the names of its state dict
  NamedTensors optimizer;
  NamedTensors others;  ///< states of random generators, the sum of losses
};

std::string checkpoint_path(const std::string& folder);

/// Returns the name of the first tensor with a number that is not finite, or an empty string. Waits for the device.
std::string first_not_finite(const Checkpoint& checkpoint);

/// Writes a dict of tensors, which torch.load() can read in Python. The previous checkpoint stays until the new one is
/// completely on the disk. Throws actzip::Error.
void write_checkpoint(const std::string& folder, const Checkpoint& checkpoint, const Options& options);

/// Reads a checkpoint. Throws WrongUsage if there is none or if it is from a run with other options, and actzip::Error
/// or std::runtime_error if it cannot be read or is not a checkpoint.
Checkpoint read_checkpoint(const std::string& folder, const Options& options);

/// Copies `values` by name into the existing tensors of `targets`. Throws std::runtime_error for a value that is
/// missing or has another shape.
void copy_into(const NamedTensors& targets, const NamedTensors& values, const std::string& what);

}  // namespace actzip::train
