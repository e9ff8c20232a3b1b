// What actzip knows of torch's operators, in one place: one row for each. Hooks, layers, parameters, encoded backward,
// attention, noise and the lookup of fx graph operators all read it. The rows are data: operator_table.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "actzip/activation.hpp"
#include "actzip/use.hpp"
#include "operators/operator_facts.hpp"

namespace torch::autograd {
struct Node;
}

namespace actzip::torch {

/// Names of slots, separated by spaces, and what the gradient needs of a tensor that is saved there. A slot is named
/// like the schema's argument; "result" is the operator's output; "aux0", "aux1" and so on are other tensors that it
/// saves. A name that ends in '*' matches all names with that beginning.
struct SlotUse {
  std::string_view slots;
  Use use = Use::unknown;
};

/// What becomes of a parameter, or of probabilities, that passes through the operator. It may still be recognised in
/// the result.
enum class PassesOn : std::uint8_t {
  nothing,
  view,
  transposition,  ///< also a view
  cast,
  scaled,      ///< multiplied element by element
  arithmetic,  ///< a sum, a product or a norm
  probabilities,
  some,  ///< part of the probabilities: a dropout
};

struct OperatorRow {
  /// Separated by spaces, without overload, and without namespace for torch's own operators. A name that ends in '*'
  /// matches all of torch's own operators with that beginning.
  std::string_view names;
  /// The first entry that matches applies. A slot without an entry has unknown use.
  std::array<SlotUse, 6> slots = {};
  FactsReader facts = nullptr;  ///< reads what the policy needs from the arguments
  std::string_view nodes = {};  ///< names of its backward nodes, if anything looks for them
  PassesOn passes_on = PassesOn::nothing;
  /// torch's operator that the node calls with what was saved, if encoded_backward.cpp can compute it from the encoded
  /// bytes; otherwise empty.
  std::string_view encoded_backward = {};
  /// If all that this operator gets is the gradient from above and the input of an activation function, whose slope it
  /// multiplies with the gradient: that function.
  std::optional<Activation> activation = {};
  int first_factor = -1;         ///< for products of batches of matrices: position of the first factor
  bool runs_again = false;       ///< its result can be computed from the arguments that it saves
  bool has_dropout = false;      ///< a product inside of it multiplies with a dropout mask
  bool bound_by_values = false;  ///< its indices may be negative, or no argument gives their bound
  bool is_torn_at_nan = false;   ///< on the CPU its gradient is 0 at some NaNs and passes at others
};

std::span<const OperatorRow> operator_table();

/// Returns the row of torch's own operator, such as "addmm", or of another library's, such as "torchvision::roi_align";
/// null if the table has none.
const OperatorRow* find_known(std::string_view name);

/// The same, but also finds rows that a program has registered: see registered_operators.hpp.
const OperatorRow* find_operator(std::string_view name);

/// Returns the row of the operator that `node` belongs to; null if no row names it. Fast: searches once for each type
/// of node.
const OperatorRow* find_node(const ::torch::autograd::Node& node);

/// Returns the use of `slot` in `row`; Use::unknown if `row` is null or has no entry for it.
Use use_of(const OperatorRow* row, std::string_view slot);

/// The same by the name of a schema, such as "aten::addmm" or "aten::add.Tensor", the target of an fx node. Operators
/// of other libraries without a row are foreign. Knows nothing of the call's surroundings: a product with a dropout
/// mask is an ordinary product here.
Use schema_use(std::string_view schema, std::string_view slot);

/// Whether operators take their weight in this slot. A leaf without gradient is a frozen weight there, and no
/// activation.
bool holds_weight(Use use, std::string_view slot);

}  // namespace actzip::torch
