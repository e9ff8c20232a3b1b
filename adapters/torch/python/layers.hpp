// Bindings for the layers.
#pragma once

#include <pybind11/pybind11.h>

namespace actzip::torch {

void bind_layers(pybind11::module_& module);

}  // namespace actzip::torch
