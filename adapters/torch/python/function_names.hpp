// Which autograd function of Python's runs.
#pragma once

#include <string>

namespace actzip::torch {

/// Module and name of the class whose apply() runs now on this thread, as in "mylib.losses.MyLoss", if it is called
/// `name`; else empty. Takes no lock: whoever runs a function of Python's has it.
std::string python_function_name(const char* name);

}  // namespace actzip::torch
