#include "function_names.hpp"

#include <pybind11/gil_safe_call_once.h>
#include <pybind11/pybind11.h>

#include <exception>
#include <string_view>

namespace py = pybind11;

namespace actzip::torch {

namespace {

/// Importing may let go of the GIL, so a plain static could deadlock with another thread.
using Once = py::gil_safe_call_once_and_store<py::object>;

/// The code object of torch.autograd.Function.apply(), which is written in Python.
PyObject* code_of_apply() {
  PYBIND11_CONSTINIT static Once code;
  code.call_once_and_store_result(
      [] { return py::object(py::module_::import("torch.autograd").attr("Function").attr("apply").attr("__code__")); });
  return code.get_stored().ptr();
}

/// torch passes only a function's name. But if the running frame is that of apply(), its local `cls` is the class.
/// Functions that bypass apply() stay unknown.
std::string name_of_class_in(py::handle frame, std::string_view name) {
  if (frame.attr("f_code").ptr() != code_of_apply()) return {};
  const py::object cls = frame.attr("f_locals")["cls"];
  if (py::cast<std::string_view>(cls.attr("__name__")) != name) return {};
  return py::cast<std::string>(cls.attr("__module__")) + "." + py::cast<std::string>(cls.attr("__qualname__"));
}

/// The code object of the method by which checkpoints that are not reentrant save their arguments. None if this torch
/// has none.
PyObject* code_of_save_inputs() {
  PYBIND11_CONSTINIT static Once code;
  code.call_once_and_store_result([] {
    const py::object frame = py::getattr(py::module_::import("torch.utils.checkpoint"), "_CheckpointFrame", py::none());
    return py::object(py::getattr(py::getattr(frame, "save_inputs", py::none()), "__code__", py::none()));
  });
  return code.get_stored().ptr();
}

/// Before Python 3.12, a list comprehension has a frame of its own.
bool is_in_save_inputs(py::handle frame) {
  const bool is_list = py::cast<std::string_view>(frame.attr("f_code").attr("co_name")) == "<listcomp>";
  const py::object caller = is_list ? py::object(frame.attr("f_back")) : py::reinterpret_borrow<py::object>(frame);
  return !caller.is_none() && caller.attr("f_code").ptr() == code_of_save_inputs();
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

bool is_python_checkpoint_saving() {
  if (PyGILState_Check() == 0) return false;
  PyFrameObject* const frame = PyEval_GetFrame();
  if (frame == nullptr) return false;
  try {
    return is_in_save_inputs(reinterpret_cast<PyObject*>(frame));
  } catch (const std::exception&) {  // a name that is no text
    return false;
  }
}

}  // namespace actzip::torch
