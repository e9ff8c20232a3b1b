// Which operator of Paddle's saves a tensor: its hooks do not tell, but it stands on the native stack.
#pragma once

#include <string>
#include <string_view>

#include "operator_table.hpp"

namespace actzip::paddle_adapter {

/// An operator by the name that the report gives it.
struct Operator {
  std::string name;
  const OperatorRow* row = nullptr;  ///< null if the table does not know it
  bool is_foreign = false;           ///< a PyLayer, of which its author alone knows what it saves for
};

/// Who saves now, on this thread. Its operator lives for ever.
struct Saver {
  const Operator* op = nullptr;
  int slot = 0;  ///< in the order in which the operator saves
};

/// To be called inside of a pack hook, with the interpreter's lock. `rank` is that of the tensor which is saved.
Saver current_saver(int rank);

/// Whether the gradient that runs now is to be differentiated again: paddle.grad(create_graph=True).
bool is_differentiated_again();

}  // namespace actzip::paddle_adapter
