// Makes the text of a report that Python holds as plain values, for instance one that was saved.
#pragma once

#include <pybind11/pybind11.h>

namespace actzip::python {

void bind_reports(pybind11::module_& module);

}  // namespace actzip::python
