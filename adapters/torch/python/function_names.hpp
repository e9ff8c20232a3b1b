// Finds out which Python code saves a tensor.
#pragma once

#include <string>

namespace actzip::torch {

/// Returns module and qualified name, such as "mylib.losses.MyLoss", of the class whose apply() runs on this thread, if
/// its plain name is `name`; otherwise an empty string. Does not take the GIL: a thread that runs a Python function
/// holds it.
std::string python_function_name(const char* name);

/// Whether torch.utils.checkpoint is saving the arguments of a call that is not reentrant. Does not take the GIL
/// either.
bool is_python_checkpoint_saving();

}  // namespace actzip::torch
