// CPython's capsules and built-in functions, for hooks that are called without going through pybind11.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <memory>
#include <utility>

namespace actzip::python {

/// Runs `body` and turns what it throws into a Python exception. For functions that CPython calls directly.
template <class Body>
PyObject* guarded(Body&& body) {
  try {
    return body();
  } catch (pybind11::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

template <class T>
void delete_capsule(PyObject* capsule) {
  delete static_cast<T*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
}

/// Returns a capsule that owns `value`. `name` is a literal.
template <class T>
pybind11::object make_capsule(T value, const char* name) {
  auto owned = std::make_unique<T>(std::move(value));
  PyObject* capsule = PyCapsule_New(owned.get(), name, &delete_capsule<T>);
  if (capsule == nullptr) throw pybind11::error_already_set();
  owned.release();  // the capsule owns it now
  return pybind11::reinterpret_steal<pybind11::object>(capsule);
}

/// Returns the value of a capsule; null, with a Python exception set, if it is no capsule of that name.
template <class T>
T* capsule_value(PyObject* capsule, const char* name) {
  return static_cast<T*>(PyCapsule_GetPointer(capsule, name));
}

inline pybind11::object new_builtin(PyMethodDef& definition, const pybind11::object& self) {
  PyObject* function = PyCFunction_New(&definition, self.ptr());
  if (function == nullptr) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::object>(function);
}

// CPython stores functions of all signatures as one type.
template <class Function>
PyCFunction as_c_function(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

}  // namespace actzip::python
