// What actzip knows of Paddle's operators, in one place: one row for each. The rows are data: operator_table.cpp.
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

/// A tensor that an operator saves. Paddle's hooks pass no names, so slots are identified by their order.
struct Slot {
  std::string_view name;
  Use use = Use::unknown;
  int least_rank = 0;  ///< a tensor with fewer dimensions is something else, of unknown use
};

/// The call that saves now: what is known of it so far.
struct Call {
  int slot = 0;
  Shape first;                      ///< of its first saved tensor
  std::uintptr_t first_memory = 0;  ///< its identity
  bool first_is_parameter = false;
};

/// Reads what the policy needs to know of the tensor that `call` saves now, from its shape and memory.
using FactsReader = void (*)(const Call& call, const Shape& shape, std::uintptr_t memory, OperatorFacts& facts);

struct OperatorRow {
  /// Separated by spaces. A prefix before a dot distinguishes the meanings of one operator: "linear.matmul".
  std::string_view names;
  std::array<Slot, 4> slots = {};  ///< in the order in which they are saved
  Slot rest = {};                  ///< everything that is saved after those
  FactsReader facts = nullptr;
  bool writes_saved = false;  ///< backward writes into what was saved, so that needs memory of its own
};

std::span<const OperatorRow> operator_table();

/// Returns the row of one of Paddle's operators, such as "conv2d"; null if the table has none.
const OperatorRow* find_operator(std::string_view name);

/// Returns the slot with that number; if the row has none, one without a name and of unknown use.
Slot slot_of(const OperatorRow* row, int slot);

/// Whether the operator has several meanings, which meaning_of() distinguishes.
bool has_meanings(std::string_view op);

/// Returns the table's name for the operator when it saves a tensor of rank `rank` and `function` of Paddle's calls it.
/// An empty `function` stands for any other caller.
std::string_view meaning_of(std::string_view op, std::string_view function, int rank);

}  // namespace actzip::paddle_adapter
