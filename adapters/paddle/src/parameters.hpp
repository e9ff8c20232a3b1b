// Tells parameters from activations where no model is known.
#pragma once

#include <Python.h>

#include <string_view>

#include "actzip/use.hpp"

namespace actzip::paddle_adapter {

/// Returns why a saved tensor exists anyway, or is made of one that does, as a literal; empty if it is an activation.
/// Looks behind views and casts only if weights can have this use, and if `is_worth` says that it is worth the time.
std::string_view reason_to_be_parameter(PyObject* object, Use use, bool is_worth);

}  // namespace actzip::paddle_adapter
