#include "modules.hpp"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "observe/running_operators.hpp"
#include "python/python_objects.hpp"
#include "session/session_impl.hpp"

namespace py = pybind11;

namespace actzip::torch {

namespace {

using python::as_c_function;
using python::capsule_value;
using python::make_capsule;
using python::new_builtin;

constexpr const char* kModuleCapsule = "actzip.module";

struct ModulePaths {
  std::shared_ptr<SessionImpl> session;  ///< owns the texts
  std::thread::id thread = std::this_thread::get_id();
  std::unordered_map<PyObject*, const std::string*> paths = {};

  [[nodiscard]] const std::string* find(PyObject* module) const {
    if (std::this_thread::get_id() != thread) return nullptr;
    const auto found = paths.find(module);
    return found == paths.end() ? nullptr : found->second;
  }
};

PyObject* enter_hook(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  const auto* paths = capsule_value<ModulePaths>(self, kModuleCapsule);
  const auto* path = count > 0 ? paths->find(arguments[0]) : nullptr;
  if (path != nullptr) enter_module(*paths->session, path);
  Py_RETURN_NONE;
}

PyObject* leave_hook(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  const auto* paths = capsule_value<ModulePaths>(self, kModuleCapsule);
  const auto* path = count > 0 ? paths->find(arguments[0]) : nullptr;
  if (path != nullptr) leave_module(*paths->session, path);
  Py_RETURN_NONE;
}

PyMethodDef kEnterDefinition = {"actzip_enter", as_c_function(&enter_hook), METH_FASTCALL, "Enters a module's path."};
PyMethodDef kLeaveDefinition = {"actzip_leave", as_c_function(&leave_hook), METH_FASTCALL, "Leaves a module's path."};

/// What a model holds, read from its modules' own dicts: named_modules() and parameters() take longer than all saves.
class ModelWalk {
 public:
  /// `paths` may be null.
  ModelWalk(SessionImpl& session, ModulePaths* paths) : session_(session), paths_(paths) {}

  void visit(PyObject* module, const std::string& path) {
    if (!seen_.insert(module).second) return;
    if (paths_ != nullptr) paths_->paths.emplace(module, session_.module_path(path));
    const py::object parameters = attribute(module, parameters_name_);
    const py::object buffers = attribute(module, buffers_name_);
    const py::object children = attribute(module, children_name_);
    if (!PyDict_Check(parameters.ptr()) || !PyDict_Check(buffers.ptr()) || !PyDict_Check(children.ptr())) {
      ask(module, path);
      return;
    }
    add_tensors(parameters.ptr());
    add_tensors(buffers.ptr());
    PyObject* name = nullptr;
    PyObject* child = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(children.ptr(), &at, &name, &child) != 0;) {
      if (child == Py_None) continue;
      const auto held = py::reinterpret_borrow<py::object>(child);  // attributes may run code that replaces it
      visit(child, paths_ != nullptr ? child_path(path, name) : path);
    }
  }

 private:
  static py::object attribute(PyObject* object, const py::str& name) {
    PyObject* value = PyObject_GetAttr(object, name.ptr());
    if (value == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(value);
  }

  static std::string child_path(const std::string& path, PyObject* name) {
    auto text = py::handle(name).cast<std::string>();
    return path.empty() ? text : path + '.' + text;
  }

  void add_tensors(PyObject* tensors) {
    PyObject* name = nullptr;
    PyObject* tensor = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(tensors, &at, &name, &tensor) != 0;) {
      if (THPVariable_Check(tensor)) session_.parameters.add(THPVariable_Unpack(tensor));
    }
  }

  /// A module that keeps no dicts, as those of TorchScript: through its methods.
  void ask(py::handle module, const std::string& path) {
    for (const char* method : {"parameters", "buffers"}) {
      for (const py::handle tensor : module.attr(method)()) session_.parameters.add(THPVariable_Unpack(tensor.ptr()));
    }
    if (paths_ == nullptr) return;
    for (const py::handle item : module.attr("named_modules")()) {
      const auto [name, child] = item.cast<std::pair<std::string, py::object>>();
      const std::string whole = path.empty() || name.empty() ? path + name : path + '.' + name;
      paths_->paths.emplace(child.ptr(), session_.module_path(whole));
    }
  }

  SessionImpl& session_;
  ModulePaths* paths_;
  std::unordered_set<PyObject*> seen_;
  py::str parameters_name_ = "_parameters";
  py::str buffers_name_ = "_buffers";
  py::str children_name_ = "_modules";
};

/// An interrupt in the middle leaves it undone; what was done can be done again.
void remove_handle(py::object& handle) {
  const py::object own = std::exchange(handle, py::object());
  if (!own) return;
  try {
    own.attr("remove")();
  } catch (const py::error_already_set&) {
    own.attr("remove")();
    throw;
  }
}

/// Takes `hook` out of one of torch's dicts of hooks, whose handle an interrupt has swallowed. Runs no Python.
void take_out(const py::object& hooks, const py::object& hook) {
  for (const auto& [key, value] : py::dict(hooks)) {
    if (!value.is(hook)) continue;
    PyObject_DelItem(hooks.ptr(), key.ptr());
    return;
  }
}

}  // namespace

void look_at_model(const Session& session, py::handle model) {
  ModelWalk(*session.impl(), nullptr).visit(model.ptr(), "");
}

ModuleWatch::ModuleWatch(const Session& session, py::handle model) {
  ModulePaths paths{session.impl()};
  ModelWalk(*session.impl(), &paths).visit(model.ptr(), "");
  const py::object self = make_capsule(std::move(paths), kModuleCapsule);
  const py::module_ torch_module = py::module_::import("torch.nn.modules.module");
  enter_ = new_builtin(kEnterDefinition, self);
  const py::object leave = new_builtin(kLeaveDefinition, self);
  try {
    enter_handle_ = torch_module.attr("register_module_forward_pre_hook")(enter_);
    leave_handle_ = torch_module.attr("register_module_forward_hook")(leave, py::arg("always_call") = true);
  } catch (...) {
    take_out(torch_module.attr("_global_forward_pre_hooks"), enter_);
    take_out(torch_module.attr("_global_forward_hooks"), leave);
    throw;
  }
}

void ModuleWatch::enter(py::handle module) const {
  if (enter_) enter_(module);
}

void ModuleWatch::remove() {
  enter_ = py::object();
  remove_handle(leave_handle_);
  remove_handle(enter_handle_);
}

void ModuleWatch::leak() noexcept {
  enter_.release();
  enter_handle_.release();
  leave_handle_.release();
}

}  // namespace actzip::torch
