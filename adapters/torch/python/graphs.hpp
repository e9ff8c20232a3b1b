// Bindings for compiled graphs: the policy for what they save, and the sessions that report it.
#pragma once

#include <pybind11/pybind11.h>

namespace actzip::torch {

void bind_graphs(pybind11::module_& module);

}  // namespace actzip::torch
