// Python's tensors as C++'s, by functions of Paddle's that its wheel exports. Declared here: the header that has them
// includes much that other modules of Python's do not need.
#pragma once

#include <Python.h>
#include <paddle/phi/api/include/tensor.h>

namespace paddle::pybind {
bool PyCheckTensor(PyObject* object);
Tensor& CastPyArg2Tensor(PyObject* object, Py_ssize_t position);
PyObject* ToPyObject(const Tensor& value, bool none_if_not_initialized);
}  // namespace paddle::pybind
