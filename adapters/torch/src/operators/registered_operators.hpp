// Operators and functions of other authors whose uses somebody has told: actzip.register().
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "operators/operator_table.hpp"

namespace actzip::torch {

/// A slot, and the name of its use.
using SlotOfUse = std::pair<std::string, std::string>;

/// `name` as OperatorInfo has it: "mylib::scale" or "Function::mylib.MyLoss". Slots that are not named stay foreign.
/// Throws Error(invalid_spec), and changes nothing, for a name that the table has or that was registered with other
/// uses, a use that is none or that needs facts nobody reads, or an operator that a scope has met already.
void register_operator(const std::string& name, const std::vector<SlotOfUse>& slots);

/// Null if nobody has registered it.
const OperatorRow* find_registered(std::string_view name);

}  // namespace actzip::torch
