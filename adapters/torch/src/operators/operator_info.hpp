// Who runs: the operators of torch's dispatcher, and functions that only call themselves something.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operators/operator_table.hpp"

namespace actzip::torch {

/// What is known about an operator, for all its calls.
struct OperatorInfo {
  /// One of torch's own goes without its namespace: "addmm". Any other has two colons in its name, so that nothing is
  /// taken for torch's: "mylib::addmm" is an operator of another library, "Function::mylib.addmm" is no operator at
  /// all, but the autograd function whose class is mylib.addmm.
  std::string name;
  std::vector<std::string> arguments = {};  ///< their names; empty for functions
  std::optional<c10::OperatorHandle> handle = {};
  std::uint32_t written = 0;                     ///< bit i: it writes into its argument i; bit 31 for all from there on
  bool is_opaque = false;                        ///< a function: nobody knows what it writes into
  bool runs_once = false;                        ///< its node must not run again in backward
  bool is_counted = false;                       ///< a function that counted() may know when it has saved everything
  bool is_torch = true;                          ///< one of torch's own
  const OperatorRow* row = find_operator(name);  ///< null if the table has none

  /// What the gradient needs of what it saves there.
  [[nodiscard]] Use use_of(std::string_view slot) const {
    const Use known = torch::use_of(row, slot);
    return known == Use::unknown && !is_torch ? Use::foreign : known;
  }
};

/// Who runs under this name. `name` is an operator's only if it lies where the operator's own name lies: functions may
/// be called anything. Never destroyed.
const OperatorInfo& operator_info(const char* name, const char* overload);

/// Tells the class of the autograd function called `name` that runs now on this thread, with its module; empty if
/// nobody knows. Then, and until it is set, functions go by their bare names.
using FunctionNamer = std::string (*)(const char* name);
void set_function_namer(FunctionNamer namer);

/// What is known of a function that has saved this many tensors, its own results where `is_result` says so. Its
/// arguments are what it saves. Null if the table does not have it. Never destroyed.
const OperatorInfo* counted(const OperatorInfo& info, const std::vector<bool>& is_result);

/// What `info` is called in places that the policy must tell from others: `prefix` is part of the name then. One of few
/// literals, compared by address. Never destroyed.
const OperatorInfo& prefixed(const char* prefix, const OperatorInfo& info);

/// Whether anything of this name, as OperatorInfo has it, has run in a scope.
bool was_met(const std::string& name);

/// The one that makes casts. Never destroyed.
const OperatorInfo& cast_operator();

/// Whoever saves outside of all of them. Never destroyed.
const OperatorInfo& unknown_operator();

}  // namespace actzip::torch
