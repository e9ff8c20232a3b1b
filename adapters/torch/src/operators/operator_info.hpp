// Identifies what runs: an operator of torch's dispatcher, or a function that merely has such a name.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operators/operator_table.hpp"

namespace actzip::torch {

/// What is known about an operator, the same for all its calls.
struct OperatorInfo {
  /// torch's own operators have no namespace: "addmm". All other names contain two colons, so they cannot be mistaken
  /// for torch's: "mylib::addmm" is an operator of another library, "Function::mylib.addmm" an autograd function whose
  /// class is mylib.addmm.
  std::string name;
  std::vector<std::string> arguments = {};  ///< names; empty for functions
  std::optional<c10::OperatorHandle> handle = {};
  std::uint32_t written = 0;                     ///< bit i: it writes into argument i; bit 31: into any from 31 on
  bool is_opaque = false;                        ///< a function: it may write into anything
  bool runs_once = false;                        ///< its node must not run again in backward
  bool is_counted = false;                       ///< a function that counted() may identify at its end
  bool is_torch = true;                          ///< one of torch's own
  const OperatorRow* row = find_operator(name);  ///< null if the tables have none

  /// Returns what the gradient needs of the tensor that is saved in `slot`.
  [[nodiscard]] Use use_of(std::string_view slot) const {
    const Use known = torch::use_of(row, slot);
    return known == Use::unknown && !is_torch ? Use::foreign : known;
  }
};

/// Returns the operator or function with this name. It is an operator only if `name` points to the operator's own text,
/// because functions may have any name. The result is never destroyed.
const OperatorInfo& operator_info(const char* name, const char* overload);

/// Returns the class of the autograd function called `name` that runs now on this thread, with its module; empty if
/// unknown. In that case, and until a namer is set, functions go by their bare names.
using FunctionNamer = std::string (*)(const char* name);
void set_function_namer(FunctionNamer namer);

/// Returns what is known of a function that has saved this many tensors, of which `is_result` marks its own results.
/// The arguments of the result are the saved tensors. Null if the table does not have the function. Never destroyed.
const OperatorInfo* counted(const OperatorInfo& info, const std::vector<bool>& is_result);

/// Returns `info` under a name with `prefix` in front, for calls that the policy must distinguish from others. Prefixes
/// are compared by address, so pass one of a few literals. Never destroyed.
const OperatorInfo& prefixed(const char* prefix, const OperatorInfo& info);

/// Whether checkpoint() of torch.utils.checkpoint is saving its arguments on this thread, outside of all operators.
/// Until a finder is set, nobody is.
using CheckpointFinder = bool (*)();
void set_checkpoint_finder(CheckpointFinder find);
bool is_checkpoint_saving();

/// Whether it is the name of a function by which checkpoints save their arguments.
bool is_checkpoint(std::string_view name);

/// Stands for torch.utils.checkpoint. Its only argument is called "input". Never destroyed.
const OperatorInfo& checkpoint_operator();

/// Whether an operator or function with this OperatorInfo::name has run in a scope.
bool was_met(const std::string& name);

/// The operator that casts. Never destroyed.
const OperatorInfo& cast_operator();

/// Stands for saves outside of all operators. Never destroyed.
const OperatorInfo& unknown_operator();

}  // namespace actzip::torch
