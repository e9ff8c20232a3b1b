// actzip._C: sessions, their hooks on torch's own stack, and module paths. No arithmetic, no policy.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actzip/error.hpp"
#include "actzip/policy.hpp"
#include "actzip/torch.hpp"
#include "actzip/version.hpp"
#include "engine.hpp"
#include "operators.hpp"

namespace py = pybind11;

namespace actzip::torch {
namespace {

using SessionPtr = std::shared_ptr<SessionImpl>;

constexpr const char* kSessionCapsule = "actzip.session";
constexpr const char* kPackedCapsule = "actzip.packed";
constexpr const char* kModuleCapsule = "actzip.module";

template <class T>
void delete_capsule(PyObject* capsule) {
  delete static_cast<T*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
}

template <class T>
py::object make_capsule(T value, const char* name) {
  auto owned = std::make_unique<T>(std::move(value));
  PyObject* capsule = PyCapsule_New(owned.get(), name, &delete_capsule<T>);
  if (capsule == nullptr) throw py::error_already_set();
  owned.release();  // the capsule's now
  return py::reinterpret_steal<py::object>(capsule);
}

template <class T>
T* capsule_value(PyObject* capsule, const char* name) {
  return static_cast<T*>(PyCapsule_GetPointer(capsule, name));
}

/// Runs `body` and turns what it throws into Python's exception: these functions are called by CPython itself.
template <class Body>
PyObject* guarded(Body&& body) {
  try {
    return body();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// The pair that marks our scopes on torch's stack. Our engine recognises it and takes the way without Python; where
// torch calls the pair itself, it does the same more slowly.

PyObject* pack_hook(PyObject* session, PyObject* tensor) {
  return guarded([&] {
    if (!THPVariable_Check(tensor)) throw py::type_error("actzip: the pack hook takes a tensor");
    auto& impl = *capsule_value<SessionPtr>(session, kSessionCapsule);
    return make_capsule(impl->pack(THPVariable_Unpack(tensor)), kPackedCapsule).release().ptr();
  });
}

PyObject* unpack_hook(PyObject* /*self*/, PyObject* packed) {
  return guarded([&] {
    const auto* value = capsule_value<Packed>(packed, kPackedCapsule);
    if (value == nullptr) throw py::error_already_set();
    return THPVariable_Wrap(value->unpack());
  });
}

PyMethodDef kPackDefinition = {"actzip_pack", &pack_hook, METH_O, "Keeps a saved tensor in an actzip session."};
PyMethodDef kUnpackDefinition = {"actzip_unpack", &unpack_hook, METH_O, "Restores a tensor kept by actzip."};

/// Needs no lock: the object is on the thread's stack of hooks, and does not change.
SessionPtr resolve_hook(PyObject* hook) {
  if (Py_TYPE(hook) != &PyCFunction_Type) return nullptr;
  const auto* function = reinterpret_cast<const PyCFunctionObject*>(hook);
  if (function->m_ml != &kPackDefinition) return nullptr;
  return *capsule_value<SessionPtr>(function->m_self, kSessionCapsule);
}

py::object new_builtin(PyMethodDef& definition, const py::object& self) {
  PyObject* function = PyCFunction_New(&definition, self.ptr());
  if (function == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(function);
}

// torch's global module hooks, set while a scope lasts: what a module's forward saves carries its path, and nothing is
// left on the module.

struct ModulePaths {
  SessionPtr session;  ///< owns the texts
  std::unordered_map<PyObject*, const std::string*> paths;

  [[nodiscard]] const std::string* find(PyObject* module) const {
    const auto found = paths.find(module);
    return found == paths.end() ? nullptr : found->second;
  }
};

PyObject* enter_hook(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  const auto* path = count > 0 ? capsule_value<ModulePaths>(self, kModuleCapsule)->find(arguments[0]) : nullptr;
  if (path != nullptr) enter_module(path);
  Py_RETURN_NONE;
}

PyObject* leave_hook(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  const auto* path = count > 0 ? capsule_value<ModulePaths>(self, kModuleCapsule)->find(arguments[0]) : nullptr;
  if (path != nullptr) leave_module(path);
  Py_RETURN_NONE;
}

// CPython keeps functions of every signature behind one type.
template <class Function>
PyCFunction as_c_function(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef kEnterDefinition = {"actzip_enter", as_c_function(&enter_hook), METH_FASTCALL, "Enters a module's path."};
PyMethodDef kLeaveDefinition = {"actzip_leave", as_c_function(&leave_hook), METH_FASTCALL, "Leaves a module's path."};

/// A pair of forward hooks for the modules of `named`, an iterable of (path, module) as named_modules() gives it.
std::pair<py::object, py::object> module_hooks(const Session& session, const py::iterable& named) {
  ModulePaths paths{session.impl(), {}};
  for (const py::handle item : named) {
    const auto [path, module] = item.cast<std::pair<std::string, py::object>>();
    paths.paths.emplace(module.ptr(), session.impl()->module_path(path));
  }
  const py::object self = make_capsule(std::move(paths), kModuleCapsule);
  return {new_builtin(kEnterDefinition, self), new_builtin(kLeaveDefinition, self)};
}

std::pair<py::object, py::object> hook_pair(const Session& session) {
  const py::object self = make_capsule(SessionPtr(session.impl()), kSessionCapsule);
  return {new_builtin(kPackDefinition, self), new_builtin(kUnpackDefinition, self)};
}

void register_parameters(Session& session, const py::iterable& tensors) {
  for (const py::handle item : tensors) {
    if (!THPVariable_Check(item.ptr())) throw py::type_error("actzip: parameters are tensors");
    session.impl()->parameters.add(THPVariable_Unpack(item.ptr()));
  }
}

SessionOptions make_options(std::string preset, std::optional<int> bits, std::int64_t min_elems, std::uint64_t seed,
                            bool dry) {
  return {std::move(preset), bits, min_elems, seed, dry};
}

/// The rows of the default policy as text, in their order: (operators, slots, reason).
std::vector<std::tuple<std::string, std::string, std::string>> policy_rows() {
  std::vector<std::tuple<std::string, std::string, std::string>> rows;
  for (const PolicyRow& row : policy_table()) rows.emplace_back(row.operators, row.slots, row.reason);
  return rows;
}

}  // namespace
}  // namespace actzip::torch

PYBIND11_MODULE(_C, module) {
  using namespace actzip::torch;  // NOLINT(google-build-using-namespace): this is the list of what is bound
  install_engine();
  set_python_resolver(&resolve_hook);
  module.attr("version") = ACTZIP_VERSION_STRING;
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const actzip::Error& error) {
      PyErr_SetString(error.code() == actzip::ErrorCode::invalid_spec ? PyExc_ValueError : PyExc_RuntimeError,
                      error.what());
    }
  });
  py::class_<Session>(module, "Session")
      .def(py::init(
               [](std::string preset, std::optional<int> bits, std::int64_t min_elems, std::uint64_t seed, bool dry) {
                 return std::make_unique<Session>(make_options(std::move(preset), bits, min_elems, seed, dry));
               }),
           py::kw_only(), py::arg("preset"), py::arg("bits"), py::arg("min_elems"), py::arg("seed"), py::arg("dry"))
      .def("hook_pair", &hook_pair)
      .def("module_hooks", &module_hooks)
      .def("register_parameters", &register_parameters)
      .def("live_bytes", &Session::live_bytes)
      .def("report_text", [](const Session& session) { return session.report().to_text(); })
      .def("report_json", [](const Session& session) { return session.report().to_json(); });
  module.def("start_listening", [](const Session& session) {
    if (start_listening(session.impl().get())) session.impl()->begin_step();
  });
  module.def("stop_listening", &stop_listening);
  module.def("policy_rows", &policy_rows);
}
