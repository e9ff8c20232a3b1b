// Finds out which of Paddle's operators saves a tensor. Paddle's hooks do not say, but the operator is on the native
// stack.
#pragma once

#include <string>
#include <string_view>

#include "operator_table.hpp"

namespace actzip::paddle_adapter {

/// An operator, under its name in reports.
struct Operator {
  std::string name;
  const OperatorRow* row = nullptr;  ///< null if the table does not know it
  bool is_foreign = false;           ///< a PyLayer: unknown what it saves tensors for
};

/// The operator that saves on this thread now. Operators are never destroyed.
struct Saver {
  const Operator* op = nullptr;
  int slot = 0;  ///< in the order in which the operator saves
};

/// Returns what saves now. Call it inside a pack hook, with the GIL held. `rank` is that of the saved tensor.
Saver current_saver(int rank);

/// Whether the gradient that is being computed may be differentiated again: paddle.grad(create_graph=True).
bool is_differentiated_again();

}  // namespace actzip::paddle_adapter
