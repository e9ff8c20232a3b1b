// Finds out which of Python's autograd functions runs.
#pragma once

#include <string>

namespace actzip::torch {

/// Returns module and qualified name, such as "mylib.losses.MyLoss", of the class whose apply() runs on this thread, if
/// its plain name is `name`; otherwise an empty string. Does not take the GIL: a thread that runs a Python function
/// holds it.
std::string python_function_name(const char* name);

}  // namespace actzip::torch
