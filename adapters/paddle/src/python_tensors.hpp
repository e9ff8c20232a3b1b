// Converts Python's tensors to C++ and back, with functions that Paddle's wheel exports. They are declared here because
// the header that declares them includes much more, which Python extensions do not need.
#pragma once

#include <Python.h>
#include <paddle/phi/api/include/tensor.h>

namespace paddle::pybind {
bool PyCheckTensor(PyObject* object);
Tensor& CastPyArg2Tensor(PyObject* object, Py_ssize_t position);
PyObject* ToPyObject(const Tensor& value, bool none_if_not_initialized);
}  // namespace paddle::pybind
