// actzip._C: sessions, their hooks on torch's own stack, and module paths. No arithmetic, no policy.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "actzip/error.hpp"
#include "actzip/levels.hpp"
#include "actzip/policy.hpp"
#include "actzip/registry.hpp"
#include "actzip/torch.hpp"
#include "actzip/torch_parts.hpp"
#include "actzip/version.hpp"
#include "engine.hpp"
#include "layers.hpp"
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
    return THPVariable_Wrap(value->unpack_as_tried());
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
      if (child != Py_None) visit(child, paths_ != nullptr ? child_path(path, name) : path);
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

/// A pair of forward hooks that know the modules of the last watch_model().
struct ModuleHooks {
  py::object enter;
  py::object leave;
};

ModuleHooks module_hooks(const Session& session) {
  const py::object self = make_capsule(ModulePaths{session.impl(), {}}, kModuleCapsule);
  return {new_builtin(kEnterDefinition, self), new_builtin(kLeaveDefinition, self)};
}

/// Registers the parameters and buffers of `model` as they are now.
void look_at_model(const Session& session, py::handle model) {
  ModelWalk(*session.impl(), nullptr).visit(model.ptr(), "");
}

/// The same, and the paths of its modules for `hooks`.
void watch_model(const Session& session, const ModuleHooks& hooks, py::handle model) {
  const auto* function = reinterpret_cast<const PyCFunctionObject*>(hooks.enter.ptr());
  auto* paths = capsule_value<ModulePaths>(function->m_self, kModuleCapsule);
  paths->paths.clear();  // an address may be another module's by now
  ModelWalk(*session.impl(), paths).visit(model.ptr(), "");
}

std::pair<py::object, py::object> hook_pair(const Session& session) {
  const py::object self = make_capsule(SessionPtr(session.impl()), kSessionCapsule);
  return {new_builtin(kPackDefinition, self), new_builtin(kUnpackDefinition, self)};
}

/// Makes the next steps trials, in which the named sites are tried out.
void set_trial(const Session& session, std::uint64_t seed, const std::vector<std::string>& sites, bool observe) {
  actzip::Session& core = session.impl()->core();
  Trial trial{.seed = seed, .sites = {}, .observe = observe};
  for (const std::string& name : sites) trial.sites.push_back(core.site_named(name));
  core.set_trial(std::move(trial));
}

/// In place of what was known.
bool learn(const Session& session, const std::vector<std::pair<std::string, double>>& sensitivities) {
  actzip::Session& core = session.impl()->core();
  Observation observation{.weight = 1.0};
  for (const auto& [name, value] : sensitivities) observation.sites.push_back({core.site_named(name), value});
  return core.learn(observation);
}

void set_samples(const Session& session, py::handle indices, bool learns) {
  if (!THPVariable_Check(indices.ptr())) throw py::type_error("actzip: indices of samples are a tensor");
  session.impl()->samples->set_next(THPVariable_Unpack(indices.ptr()), learns);
}

/// What is known of each sample of the data set; None before the first step.
py::object sample_factors(const Session& session) {
  const at::Tensor factors = session.impl()->samples->factors();
  return factors.defined() ? py::reinterpret_steal<py::object>(THPVariable_Wrap(factors)) : py::none();
}

/// Site and codec of what the pack hook gave; None if it holds no codes.
std::optional<std::pair<std::string, std::string>> kept_as(py::handle packed) {
  const auto* value = capsule_value<Packed>(packed.ptr(), kPackedCapsule);
  if (value == nullptr) throw py::error_already_set();
  if (!value->is_encoded()) return std::nullopt;
  return std::pair(value->site(), to_string(value->encoding().spec));
}

/// (low, high, restored, bytes of the low part, bytes of the high part).
std::tuple<at::Tensor, at::Tensor, at::Tensor, std::size_t, std::size_t> take_apart_by(const at::Tensor& tensor,
                                                                                       const std::string& codec,
                                                                                       std::uint64_t seed) {
  const CodecSpec spec = parse_spec(codec);
  const auto* dual = std::get_if<Dual>(&spec);
  if (dual == nullptr) {
    throw Error(ErrorCode::invalid_spec,
                "'" + codec + "' has no two parts (allowed: " + std::string(codec_info(Dual{}).grammar) + ")");
  }
  const Parts parts = take_apart(tensor, *dual, seed);
  return {parts.low, parts.high, parts.restored, parts.low_bytes, parts.high_bytes};
}

/// The rows of the default policy as text, in their order: (operators, slots, reason).
std::vector<std::tuple<std::string, std::string, std::string>> policy_rows() {
  std::vector<std::tuple<std::string, std::string, std::string>> rows;
  for (const PolicyRow& row : policy_table()) rows.emplace_back(row.operators, row.slots, row.reason);
  return rows;
}

/// All levels: {"name", "runs_as", ...}, the fields of actzip::Level.
std::vector<py::dict> level_table() {
  std::vector<py::dict> table;
  for (const Level& level : levels()) {
    using namespace py::literals;  // NOLINT(google-build-using-namespace)
    table.push_back(py::dict("name"_a = level.name, "runs_as"_a = level.runs_as, "bits"_a = level.bits,
                             "adapt"_a = level.adapt, "reach"_a = static_cast<int>(level.reach),
                             "autotune"_a = level.autotune, "empty_cache_below"_a = level.empty_cache_below,
                             "chunk_bytes"_a = level.chunk_bytes, "strategy"_a = level.strategy));
  }
  return table;
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
  py::class_<ModuleHooks>(module, "ModuleHooks")
      .def_readonly("enter", &ModuleHooks::enter)
      .def_readonly("leave", &ModuleHooks::leave);
  py::class_<Session>(module, "Session")
      .def(py::init([](std::string preset, std::optional<double> bits, std::int64_t min_elems, std::uint64_t seed,
                       bool dry, std::string only, const std::vector<std::pair<std::string, std::string>>& rules,
                       std::string adapt, std::int64_t interval, bool use_gradient, std::int64_t num_samples,
                       std::string codec, int max_bits) {
             actzip::SessionOptions options{std::move(preset),
                                            bits,
                                            min_elems,
                                            seed,
                                            dry,
                                            std::move(only),
                                            {},
                                            std::move(adapt),
                                            interval,
                                            use_gradient,
                                            num_samples,
                                            std::move(codec),
                                            max_bits};
             for (const auto& [sites, keep] : rules) options.rules.push_back({sites, keep});
             return std::make_unique<Session>(options);
           }),
           py::kw_only(), py::arg("preset"), py::arg("bits"), py::arg("min_elems"), py::arg("seed"), py::arg("dry"),
           py::arg("only"), py::arg("rules"), py::arg("adapt"), py::arg("interval"), py::arg("use_gradient"),
           py::arg("num_samples"), py::arg("codec"), py::arg("max_bits"))
      .def("set_samples", &set_samples)
      .def("sample_factors", &sample_factors)
      .def("hook_pair", &hook_pair)
      .def("module_hooks", &module_hooks)
      .def("look_at_model", &look_at_model)
      .def("watch_model", &watch_model)
      .def("register_parameters",
           [](Session& session, const std::vector<at::Tensor>& tensors) { session.register_parameters(tensors); })
      .def("live_bytes", &Session::live_bytes)
      .def("saves", [](const Session& session) { return session.impl()->core().saves(); })
      .def("adapts", [](const Session& session) { return session.impl()->core().adapts(); })
      .def("wants_measurement", [](const Session& session) { return session.impl()->core().wants_measurement(); })
      .def("adds_much", [](const Session& session) { return session.impl()->core().adds_much(); })
      .def("set_trial", &set_trial, py::arg("seed"), py::arg("sites"), py::arg("observe"))
      .def("end_trial", [](const Session& session) { session.impl()->core().set_trial(std::nullopt); })
      .def("take_observation", [](const Session& session) { return session.impl()->take_observation(); })
      .def("learn", &learn)
      .def("set_measured_variance",
           [](const Session& session, double value) { session.impl()->core().set_measured_variance(value); })
      .def("report_text", [](const Session& session) { return session.report().to_text(); })
      .def("report_json", [](const Session& session) { return session.report().to_json(); });
  module.def("start_listening", [](const Session& session) { return start_listening(session.impl().get()); });
  module.def("stop_listening", &stop_listening);
  module.def("kept_as", &kept_as);
  module.def("take_apart", &take_apart_by, py::arg("tensor"), py::arg("codec"), py::arg("seed"));
  module.def("policy_rows", &policy_rows);
  module.def("levels", &level_table);
  bind_layers(module);
  module.def("expected_error",
             [](const std::string& codec) { return actzip::expected_error(actzip::parse_spec(codec)); });
}
