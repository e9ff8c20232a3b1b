// What actzip knows of Paddle's operators, in one place: one row an operator. The rows are data: operator_table.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "actzip/policy.hpp"
#include "actzip/use.hpp"
#include "actzip/view.hpp"

namespace actzip::paddle_adapter {

/// A tensor that an operator saves. Paddle's hooks tell no names: slots are told apart by their order.
struct Slot {
  std::string_view name;
  Use use = Use::unknown;
  int least_rank = 0;  ///< with fewer dimensions it is something else, of unknown use
};

/// Of the call that saves now, as far as it has saved.
struct Call {
  int slot = 0;
  Shape first;                      ///< of what it saved first
  std::uintptr_t first_memory = 0;  ///< its identity
  bool first_is_parameter = false;
};

/// Reads what the policy wants to know of the tensor that `call` saves now, from its shape and memory.
using FactsReader = void (*)(const Call& call, const Shape& shape, std::uintptr_t memory, OperatorFacts& facts);

struct OperatorRow {
  /// Separated by spaces. What stands before a dot tells apart the meanings of one operator: "linear.matmul".
  std::string_view names;
  std::array<Slot, 4> slots = {};  ///< in the order in which they are saved
  Slot rest = {};                  ///< what is saved after those
  FactsReader facts = nullptr;
  bool writes_saved = false;  ///< backward writes into what was saved, so that it needs memory of its own
};

std::span<const OperatorRow> operator_table();

/// Of Paddle's operator "conv2d"; null if the table has none.
const OperatorRow* find_operator(std::string_view name);

/// Its slot; one without a name, of unknown use, if it has none.
Slot slot_of(const OperatorRow* row, int slot);

/// Whether the operator does several things, which meaning_of() tells apart.
bool has_meanings(std::string_view op);

/// What the table calls the operator when it saves a tensor of that rank, called by that function of Paddle's; empty:
/// by somebody else.
std::string_view meaning_of(std::string_view op, std::string_view function, int rank);

}  // namespace actzip::paddle_adapter
