#include "function_names.hpp"

#include <pybind11/pybind11.h>

#include <exception>
#include <string_view>

namespace py = pybind11;

namespace actzip::torch {

namespace {

/// The code object of torch.autograd.Function.apply(), which is written in Python. Never freed, because it may be
/// needed at any time.
PyObject* code_of_apply() {
  static PyObject* const code =
      py::object(py::module_::import("torch.autograd").attr("Function").attr("apply").attr("__code__")).release().ptr();
  return code;
}

/// torch passes only a function's name. But if the running frame is that of apply(), its local `cls` is the class.
/// Functions that bypass apply() stay unknown.
std::string name_of_class_in(py::handle frame, std::string_view name) {
  if (frame.attr("f_code").ptr() != code_of_apply()) return {};
  const py::object cls = frame.attr("f_locals")["cls"];
  if (py::cast<std::string_view>(cls.attr("__name__")) != name) return {};
  return py::cast<std::string>(cls.attr("__module__")) + "." + py::cast<std::string>(cls.attr("__qualname__"));
}

}  // namespace

std::string python_function_name(const char* name) {
  if (PyGILState_Check() == 0) return {};  // a C++ function
  PyFrameObject* const frame = PyEval_GetFrame();
  if (frame == nullptr) return {};
  try {
    return name_of_class_in(reinterpret_cast<PyObject*>(frame), name);
  } catch (const std::exception&) {  // the class has no ordinary name, for instance a module that is no text
    return {};
  }
}

}  // namespace actzip::torch
