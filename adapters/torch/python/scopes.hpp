// Bindings for `with session:`, which is entered and left in one piece.
#pragma once

#include <pybind11/pybind11.h>

namespace actzip::torch {

void bind_scopes(pybind11::module_& module);

}  // namespace actzip::torch
