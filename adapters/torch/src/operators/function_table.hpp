// Autograd functions of Python's that actzip knows: torch's own, and some of other libraries. The rows are data:
// function_table.cpp.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "operators/operator_table.hpp"

namespace actzip::torch {

/// A function is known by module and name of its class, and by how many tensors it saves: another number is another
/// release of the library, of which nobody knows what it saves.
struct FunctionRow {
  std::string_view names;  ///< "mylib.losses.MyLoss", separated by spaces
  /// What it saves, in that order, separated by spaces. What may be its own result begins with "output": a function
  /// that saves its result elsewhere is not the one that is known.
  std::string_view saves;
  OperatorRow row;  ///< without names; its readers of facts get what was saved in place of arguments
  /// Its backward must not run again: it talks to other processes, who would not answer.
  bool runs_once = false;
};

std::span<const FunctionRow> function_table();

/// Whether any row has this name.
bool is_known_function(std::string_view name);

/// The row of this name whose saves are as many, and may be the function's own result where `is_result` says so; null
/// if there is none.
const FunctionRow* find_function(std::string_view name, const std::vector<bool>& is_result);

/// The parts of a list that is separated by spaces.
std::vector<std::string_view> words_of(std::string_view list);

}  // namespace actzip::torch
