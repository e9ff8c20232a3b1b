// actzip._paddle_C: sessions, and their hooks as built-in functions of Python. No arithmetic, no policy.
#include <Python.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actzip/error.hpp"
#include "operator_table.hpp"
#include "python/core_tables.hpp"
#include "python/python_objects.hpp"
#include "python/reports.hpp"
#include "python/session_options.hpp"
#include "python_tensors.hpp"
#include "saver.hpp"
#include "session.hpp"

namespace py = pybind11;

namespace actzip::paddle_adapter {
namespace {

using python::as_c_function;
using python::capsule_value;
using python::make_capsule;
using python::new_builtin;
using SessionPtr = std::shared_ptr<PaddleSession>;
using PackedPtr = std::shared_ptr<Packed>;

constexpr const char* kSessionCapsule = "actzip.paddle.session";
constexpr const char* kPackedCapsule = "actzip.paddle.packed";
constexpr const char* kModuleCapsule = "actzip.paddle.module";

/// Number of sessions that are entered on this thread; Paddle's hooks are called on all threads.
thread_local int t_entered = 0;

const phi::DenseTensor& dense(PyObject* tensor) {
  if (!paddle::pybind::PyCheckTensor(tensor)) throw py::type_error("actzip.paddle: not a tensor of Paddle's");
  const auto& impl = paddle::pybind::CastPyArg2Tensor(tensor, 0).impl();
  if (impl == nullptr || !phi::DenseTensor::classof(impl.get())) {
    throw py::type_error("actzip.paddle: a tensor that is not dense, or has no memory");
  }
  return static_cast<const phi::DenseTensor&>(*impl);
}

/// After an error in a hook, Paddle leaves gradients disabled.
void turn_gradients_on() { py::module_::import("paddle.base.core").attr("_set_has_grad")(true); }

/// Runs the body of a hook. Enables gradients again if it throws.
template <class Body>
PyObject* guarded(Body body) {
  return python::guarded([&] {
    try {
      return body();
    } catch (...) {
      turn_gradients_on();
      throw;
    }
  });
}

PyObject* pack_hook(PyObject* self, PyObject* tensor) {
  return guarded([&] {
    PackedPtr packed = t_entered > 0 ? (*capsule_value<SessionPtr>(self, kSessionCapsule))->pack(tensor)
                                     : std::make_shared<Packed>(dense(tensor), Packed::Backward::asks);
    return make_capsule(std::move(packed), kPackedCapsule).release().ptr();
  });
}

PyObject* unpack_hook(PyObject* /*self*/, PyObject* packed) {
  return guarded([&] {
    const auto* value = capsule_value<PackedPtr>(packed, kPackedCapsule);
    if (value == nullptr) throw py::error_already_set();
    if ((*value)->is_lossy() && is_differentiated_again()) {
      throw Error(ErrorCode::invalid_state,
                  "actzip: paddle.grad with create_graph=True asks for what " + (*value)->site() +
                      " saved, of which a few bits are kept; their error would enter the loss itself "
                      "(allowed: this forward outside of the scope, or preset=\"exact\")");
    }
    return paddle::pybind::ToPyObject(paddle::Tensor((*value)->restored()), false);
  });
}

struct ModuleHook {
  std::weak_ptr<PaddleSession> session;
  const std::string* path;
};

PyObject* enter_hook(PyObject* self, PyObject* const* /*arguments*/, Py_ssize_t /*count*/) {
  const auto* hook = capsule_value<ModuleHook>(self, kModuleCapsule);
  if (const auto session = hook->session.lock(); session && t_entered > 0) session->enter_module(hook->path);
  Py_RETURN_NONE;
}

PyObject* leave_hook(PyObject* self, PyObject* const* /*arguments*/, Py_ssize_t /*count*/) {
  const auto* hook = capsule_value<ModuleHook>(self, kModuleCapsule);
  if (const auto session = hook->session.lock(); session && t_entered > 0) session->leave_module(hook->path);
  Py_RETURN_NONE;
}

PyMethodDef kPack = {"actzip_pack", &pack_hook, METH_O, "Keeps a saved tensor in an actzip session."};
PyMethodDef kUnpack = {"actzip_unpack", &unpack_hook, METH_O, "Restores a tensor kept by actzip."};
PyMethodDef kEnter = {"actzip_enter", as_c_function(&enter_hook), METH_FASTCALL, "Enters a layer's path."};
PyMethodDef kLeave = {"actzip_leave", as_c_function(&leave_hook), METH_FASTCALL, "Leaves a layer's path."};

std::pair<py::object, py::object> hook_pair(const SessionPtr& session) {
  const py::object self = make_capsule(session, kSessionCapsule);
  return {new_builtin(kPack, self), new_builtin(kUnpack, self)};
}

/// Returns hooks to call before and after the forward of the layer at `path`.
std::pair<py::object, py::object> module_hooks(const SessionPtr& session, const std::string& path) {
  const py::object self = make_capsule(ModuleHook{session, session->module_path(path)}, kModuleCapsule);
  return {new_builtin(kEnter, self), new_builtin(kLeave, self)};
}

void set_parameters(PaddleSession& session, const std::vector<py::handle>& tensors) {
  std::vector<std::shared_ptr<phi::Allocation>> memories;
  for (const py::handle& tensor : tensors) {
    if (const auto& memory = dense(tensor.ptr()).Holder()) memories.push_back(memory);
  }
  session.set_parameters(memories);
}

bool learn(PaddleSession& session, const std::vector<std::pair<std::string, double>>& sensitivities) {
  Observation observation{.weight = 1.0};
  for (const auto& [name, value] : sensitivities) {
    observation.sites.push_back({session.core().site_named(name), value});
  }
  return session.core().learn(observation);
}

/// Makes the next steps trials, in which the named sites are kept with noise.
void set_trial(PaddleSession& session, std::uint64_t seed, const std::vector<std::string>& sites) {
  Trial trial{.seed = seed, .sites = {}, .observe = false};
  for (const std::string& name : sites) trial.sites.push_back(session.core().site_named(name));
  session.core().set_trial(std::move(trial));
}

/// The operator table: {"names", "slots": [(slot, use), ...]} of each row.
std::vector<py::dict> operator_rows() {
  using namespace py::literals;  // NOLINT(google-build-using-namespace)
  std::vector<py::dict> rows;
  for (const OperatorRow& row : operator_table()) {
    std::vector<std::pair<std::string_view, std::string_view>> slots;
    for (const Slot& slot : row.slots) {
      if (!slot.name.empty()) slots.emplace_back(slot.name, to_string(slot.use));
    }
    rows.push_back(py::dict("names"_a = row.names, "slots"_a = slots));
  }
  return rows;
}

}  // namespace
}  // namespace actzip::paddle_adapter

PYBIND11_MODULE(_paddle_C, module) {
  using namespace actzip::paddle_adapter;  // NOLINT(google-build-using-namespace): this is the list of what is bound
  actzip::python::bind_core_tables(module);
  actzip::python::bind_reports(module);
  py::class_<PaddleSession, std::shared_ptr<PaddleSession>> sessions(module, "Session", py::module_local());
  actzip::python::def_init(sessions);
  sessions.def("hook_pair", &hook_pair)
      .def("module_hooks", &module_hooks)
      .def("begin_step", &PaddleSession::begin_step)
      .def("set_parameters", &set_parameters)
      .def("take_fault", &PaddleSession::take_fault)
      .def("live_bytes", [](PaddleSession& session) { return session.core().live_bytes(); })
      .def("save_state", [](PaddleSession& session) { return session.core().save_state(); })
      .def("load_state", [](PaddleSession& session, std::string_view text) { session.core().load_state(text); })
      .def("adapts", [](PaddleSession& session) { return session.core().adapts(); })
      .def("wants_measurement", [](PaddleSession& session) { return session.core().wants_measurement(); })
      .def("adds_much", [](PaddleSession& session) { return session.core().adds_much(); })
      .def("set_trial", &set_trial)
      .def("end_trial", [](PaddleSession& session) { session.core().set_trial(std::nullopt); })
      .def("learn", &learn)
      .def("set_measured_variance",
           [](PaddleSession& session, double value) { session.core().set_measured_variance(value); })
      .def("report_json", [](PaddleSession& session) { return session.core().report().to_json(); });
  module.def("count_entered", [](int change) { return t_entered += change; });
  module.def("operator_rows", &operator_rows);
}
