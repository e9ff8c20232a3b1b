// What every extension offers of the core, whatever its framework: versions, errors, and tables to read.
#pragma once

#include <pybind11/pybind11.h>

namespace actzip::python {

void bind_core_tables(pybind11::module_& module);

}  // namespace actzip::python
