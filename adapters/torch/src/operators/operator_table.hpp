// What actzip knows of torch's operators, in one place: one row an operator. Hooks, layers, parameters, encoded
// backward, attention and noise read it; so does whoever asks for an operator of an fx graph. The rows are data:
// operator_table.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "actzip/use.hpp"
#include "operators/operator_facts.hpp"

namespace torch::autograd {
struct Node;
}

namespace actzip::torch {

/// Names of slots, separated by spaces, and what the gradient needs of a tensor that is saved there. Names are those of
/// the schema's arguments; "result" is the operator's output, "aux0" and so on what else it saves. A name that ends in
/// '*' stands for all that begin so.
struct SlotUse {
  std::string_view slots;
  Use use = Use::unknown;
};

/// What the operator makes of a parameter, or of probabilities, that passes through it: it may still be recognised
/// behind.
enum class PassesOn : std::uint8_t {
  nothing,
  view,
  transposition,  ///< a view, too
  cast,
  scaled,      ///< a multiple, element by element
  arithmetic,  ///< a sum, a product or a norm
  probabilities,
  some,  ///< a part of them: a dropout
};

struct OperatorRow {
  /// Separated by spaces, without overload, and without namespace if they are torch's own; a name that ends in '*'
  /// stands for all of torch's own that begin so.
  std::string_view names;
  /// The first that matches holds. What no entry matches is of unknown use.
  std::array<SlotUse, 6> slots = {};
  FactsReader facts = nullptr;  ///< reads what the policy wants to know of the arguments
  std::string_view nodes = {};  ///< names of its nodes in backward, where anybody looks for them
  PassesOn passes_on = PassesOn::nothing;
  /// The operator of torch that its node calls with what was saved, and that encoded_backward.cpp computes from the
  /// encoded bytes; empty if it computes none.
  std::string_view encoded_backward = {};
  int first_factor = -1;         ///< of a product of batches of matrices: its position, which the second's follows
  bool runs_again = false;       ///< its result can be computed from the arguments it saves
  bool has_dropout = false;      ///< what it multiplies with inside is a dropout's mask
  bool bound_by_values = false;  ///< its indices may be negative, or their bound is not among its arguments
  bool is_torn_at_nan = false;   ///< the CPU stops its gradient at some NaNs, and lets it pass at others
};

std::span<const OperatorRow> operator_table();

/// Of torch's own operator "addmm", or another library's "torchvision::roi_align"; null if the table has none.
const OperatorRow* find_known(std::string_view name);

/// The same, or the row that somebody has registered: see registered_operators.hpp.
const OperatorRow* find_operator(std::string_view name);

/// The row of the operator that `node` is of; null if no row names it. Fast: looks once for each type of node.
const OperatorRow* find_node(const ::torch::autograd::Node& node);

/// What `row` says of a slot; unknown if there is none, or it says nothing.
Use use_of(const OperatorRow* row, std::string_view slot);

/// The same by the name of a schema, as an fx node's target has it: "aten::addmm", "aten::add.Tensor". Operators of
/// other libraries without a row are foreign. What only the call's surroundings tell is left out: a product with a
/// dropout's mask is a product here.
Use schema_use(std::string_view schema, std::string_view slot);

/// Whether an operator takes its weight there: a leaf without gradient is a frozen weight then, and no activation.
bool holds_weight(Use use, std::string_view slot);

}  // namespace actzip::torch
