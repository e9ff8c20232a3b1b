#include "modules.hpp"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "observe/running_operators.hpp"
#include "python/python_objects.hpp"
#include "session/session_impl.hpp"

namespace py = pybind11;

namespace actzip::torch {

namespace {

using python::as_c_function;
using python::new_builtin;

PyObject* enter_hook(PyObject* self, PyObject* const* arguments, Py_ssize_t count);
PyObject* leave_hook(PyObject* self, PyObject* const* arguments, Py_ssize_t count);
PyMethodDef kEnterDefinition = {"actzip_enter", as_c_function(&enter_hook), METH_FASTCALL, "Enters a module's path."};
PyMethodDef kLeaveDefinition = {"actzip_leave", as_c_function(&leave_hook), METH_FASTCALL, "Leaves a module's path."};

/// The one pair of hooks for all threads, always the same objects under the same key, because torch.compile makes a new
/// graph for each hook that it has not seen. Never destroyed, because Python may have shut down by then.
const ModuleHooks& module_hooks_once() {
  static const auto* hooks =
      new ModuleHooks{new_builtin(kEnterDefinition, py::none()), new_builtin(kLeaveDefinition, py::none())};
  return *hooks;
}

/// Keeps the hooks in torch's tables while any thread has a watch that is not hidden. All of this requires the GIL and
/// runs no Python code, so neither another thread nor an interrupt sees it half done.
class HookTables {
 public:
  static void count(int more) {
    s_watching += more;
    if (s_watching > 0) {
      put_up();
    } else {
      take_down();
    }
  }

  /// The hooks stay until another watch is removed.
  static void count_leaked() noexcept { --s_watching; }

 private:
  static constexpr std::array kTables{"_global_forward_pre_hooks", "_global_forward_hooks",
                                      "_global_forward_hooks_always_called"};

  static py::object tables() { return py::module_::import("torch.nn.modules.module"); }

  static void put_up() {
    const ModuleHooks& hooks = module_hooks_once();
    const std::array<py::object, kTables.size()> values{hooks.enter, hooks.leave, py::bool_(true)};
    const py::object module = tables();
    for (std::size_t i = 0; i < kTables.size(); ++i) {
      const py::object table = module.attr(kTables.at(i));
      if (table.contains(kKey)) continue;
      if (PyObject_SetItem(table.ptr(), py::str(kKey).ptr(), values.at(i).ptr()) != 0) throw py::error_already_set();
    }
  }

  static void take_down() {
    const py::object module = tables();
    for (const char* name : kTables) {
      const py::object table = module.attr(name);
      if (table.contains(kKey) && PyObject_DelItem(table.ptr(), py::str(kKey).ptr()) != 0) {
        throw py::error_already_set();
      }
    }
  }

  static constexpr const char* kKey = "actzip";  // torch's own keys are numbers
  static inline std::atomic<int> s_watching = 0;
};

}  // namespace

/// The paths of one session's modules.
struct ModulePaths {
  std::shared_ptr<SessionImpl> session;  ///< owns the paths
  int hidden = 0;                        ///< how many times; modules are ignored while it is above 0
  std::unordered_map<PyObject*, const std::string*> paths = {};

  [[nodiscard]] const std::string* find(PyObject* module) const {
    const auto found = hidden > 0 ? paths.end() : paths.find(module);
    return found == paths.end() ? nullptr : found->second;
  }
};

namespace {

thread_local std::vector<ModulePaths*> t_watching;

PyObject* enter_hook(PyObject* /*self*/, PyObject* const* arguments, Py_ssize_t count) {
  for (const ModulePaths* watching : t_watching) {
    const auto* path = count > 0 ? watching->find(arguments[0]) : nullptr;
    if (path != nullptr) enter_module(*watching->session, path);
  }
  Py_RETURN_NONE;
}

PyObject* leave_hook(PyObject* /*self*/, PyObject* const* arguments, Py_ssize_t count) {
  for (const ModulePaths* watching : t_watching) {
    const auto* path = count > 0 ? watching->find(arguments[0]) : nullptr;
    if (path != nullptr) leave_module(*watching->session, path);
  }
  Py_RETURN_NONE;
}

/// Reads what a model holds from the dicts of its modules: named_modules() and parameters() take longer than all saves
/// of a step.
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
      const auto held = py::reinterpret_borrow<py::object>(child);  // attribute reads may run code that replaces it
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

  /// For a module without these dicts, such as TorchScript's: uses its methods.
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

}  // namespace

void look_at_model(const Session& session, py::handle model) {
  ModelWalk(*session.impl(), nullptr).visit(model.ptr(), "");
}

ModuleWatch::ModuleWatch(const Session& session, py::handle model) {
  auto paths = std::make_unique<ModulePaths>(ModulePaths{session.impl()});
  ModelWalk(*session.impl(), paths.get()).visit(model.ptr(), "");
  t_watching.push_back(paths.get());
  paths_ = std::move(paths);
  try {
    HookTables::count(1);
  } catch (...) {
    remove();
    throw;
  }
}

ModuleWatch::ModuleWatch() noexcept = default;
ModuleWatch::ModuleWatch(ModuleWatch&&) noexcept = default;
ModuleWatch& ModuleWatch::operator=(ModuleWatch&&) noexcept = default;
ModuleWatch::~ModuleWatch() = default;

void ModuleWatch::enter(py::handle module) const {
  const auto* path = paths_ ? paths_->find(module.ptr()) : nullptr;
  if (path != nullptr) enter_module(*paths_->session, path);
}

void ModuleWatch::remove() {
  const std::unique_ptr<ModulePaths> own = std::move(paths_);
  if (!own) return;
  std::erase(t_watching, own.get());
  if (own->hidden == 0) HookTables::count(-1);
}

void ModuleWatch::leak() noexcept {
  if (paths_.release() != nullptr) HookTables::count_leaked();
}

const ModuleHooks& module_hooks() { return module_hooks_once(); }

void hide_module_watches() {
  int seen = 0;
  for (ModulePaths* watching : t_watching) seen += watching->hidden++ == 0 ? 1 : 0;
  if (seen > 0) HookTables::count(-seen);
}

void show_module_watches() {
  int seen = 0;
  for (ModulePaths* watching : t_watching) seen += watching->hidden > 0 && --watching->hidden == 0 ? 1 : 0;
  if (seen > 0) HookTables::count(seen);
}

}  // namespace actzip::torch
