// Bindings that every extension has, whatever its framework: versions, errors, and the core's tables.
#pragma once

#include <pybind11/pybind11.h>

namespace actzip::python {

void bind_core_tables(pybind11::module_& module);

}  // namespace actzip::python
