// Python's autograd functions that actzip knows: torch's own, and some of other libraries. The rows are data:
// function_table.cpp.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "operators/operator_table.hpp"

namespace actzip::torch {

/// A function is identified by module and name of its class, and by how many tensors it saves. Another number means
/// another release of the library, of which it is unknown what it saves.
struct FunctionRow {
  std::string_view names;  ///< such as "mylib.losses.MyLoss", separated by spaces
  /// Names of the slots in the order in which they are saved, separated by spaces. Only a slot whose name begins with
  /// "output" may be the function's own result; a function that saves its result elsewhere is another one.
  std::string_view saves;
  OperatorRow row;  ///< without names; its facts reader gets the saved tensors as arguments
  /// Its backward must not run again, because it communicates with other processes.
  bool runs_once = false;
};

std::span<const FunctionRow> function_table();

/// Whether any row has this name.
bool is_known_function(std::string_view name);

/// Returns the row of this name with as many saves, where the results that `is_result` marks are allowed; null if there
/// is none.
const FunctionRow* find_function(std::string_view name, const std::vector<bool>& is_result);

/// Splits a list that is separated by spaces.
std::vector<std::string_view> words_of(std::string_view list);

}  // namespace actzip::torch
