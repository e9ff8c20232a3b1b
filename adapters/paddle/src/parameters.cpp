#include "parameters.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <string>

namespace actzip::paddle_adapter {

namespace {

struct Release {
  void operator()(PyObject* object) const { Py_XDECREF(object); }
};
using Owned = std::unique_ptr<PyObject, Release>;

/// Interned strings, made once.
struct Names {
  PyObject* persistable = PyUnicode_InternFromString("persistable");
  PyObject* is_leaf = PyUnicode_InternFromString("is_leaf");
  PyObject* stop_gradient = PyUnicode_InternFromString("stop_gradient");
  PyObject* grad_fn = PyUnicode_InternFromString("grad_fn");
  PyObject* name = PyUnicode_InternFromString("name");
  PyObject* next_functions = PyUnicode_InternFromString("next_functions");
};

const Names& names() {
  static const auto* const made = new Names;
  return *made;
}

Owned attribute(PyObject* object, PyObject* name) {
  Owned value(PyObject_GetAttr(object, name));
  if (!value) PyErr_Clear();
  return value;
}

bool is_true(const Owned& value) { return value.get() == Py_True; }

/// Nodes of operators behind which a weight is still recognised: views, casts and scalings.
constexpr std::array<std::string_view, 9> kPassing = {
    "TransposeGradNode", "ReshapeGradNode", "CastGradNode",   "ScaleGradNode", "UnsqueezeGradNode",
    "SqueezeGradNode",   "FlattenGradNode", "AssignGradNode", "SliceGradNode",
};

std::string name_of(PyObject* node) {
  const Owned text(PyObject_CallMethodNoArgs(node, names().name));
  const char* const name = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (name == nullptr) PyErr_Clear();
  return name == nullptr ? "" : name;
}

Owned next_of(PyObject* node) {
  const Owned nodes = attribute(node, names().next_functions);
  if (!nodes || !PyList_Check(nodes.get()) || PyList_GET_SIZE(nodes.get()) != 1) return nullptr;
  return Owned(Py_NewRef(PyList_GET_ITEM(nodes.get(), 0)));
}

/// Whether the tensor comes from a leaf that gets a gradient, through nodes of kPassing only.
bool is_made_of_leaf(PyObject* object) {
  constexpr int kMostNodes = 6;
  Owned node = attribute(object, names().grad_fn);
  for (int i = 0; i < kMostNodes && node && node.get() != Py_None; ++i) {
    const std::string name = name_of(node.get());
    if (name == "GradNodeAccumulation") return true;
    if (std::ranges::find(kPassing, name) == kPassing.end()) return false;
    node = next_of(node.get());
  }
  return false;
}

bool may_be_weight(Use use) {
  switch (use) {
    case Use::linear_input:
    case Use::linear_weight:
    case Use::batched_operand:
    case Use::vector_operand:
    case Use::convolution_weight:
    case Use::factor: return true;
    default: return false;
  }
}

}  // namespace

std::string_view reason_to_be_parameter(PyObject* object, Use use, bool is_worth) {
  if (is_true(attribute(object, names().persistable))) return "a parameter";
  if (!is_worth) return "";
  if (is_true(attribute(object, names().is_leaf))) {
    return is_true(attribute(object, names().stop_gradient)) ? "" : "a leaf that gets a gradient";
  }
  return may_be_weight(use) && is_made_of_leaf(object) ? "made of a parameter" : "";
}

}  // namespace actzip::paddle_adapter
