// Operators and functions of other libraries whose uses a program has registered with actzip.register().
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "operators/operator_table.hpp"

namespace actzip::torch {

/// Names of a slot and of its use.
using SlotOfUse = std::pair<std::string, std::string>;

/// Registers the uses of an operator or function. `name` is an OperatorInfo::name: "mylib::scale" or
/// "Function::mylib.MyLoss". Slots that are not listed stay foreign.
///
/// Throws Error(invalid_spec), and changes nothing, if the table has that name, if it was registered with other uses,
/// if a use is unknown or needs facts that nothing could read, or if the operator has run in a scope already.
void register_operator(const std::string& name, const std::vector<SlotOfUse>& slots);

/// Returns the registered row of that name; null if there is none.
const OperatorRow* find_registered(std::string_view name);

}  // namespace actzip::torch
