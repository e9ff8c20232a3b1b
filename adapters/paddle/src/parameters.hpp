// Telling parameters from activations where no model is known.
#pragma once

#include <Python.h>

#include <string_view>

#include "actzip/use.hpp"

namespace actzip::paddle_adapter {

/// Why a saved tensor exists anyway, or is made of one that does: a literal; empty if it is an activation. Looks behind
/// views and casts only if the use is one that weights have, and it `is_worth` it.
std::string_view reason_to_be_parameter(PyObject* object, Use use, bool is_worth);

}  // namespace actzip::paddle_adapter
