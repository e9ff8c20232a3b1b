// actzip._C: sessions, their hooks on torch's own stack, and tables. No arithmetic, no policy.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "actzip/error.hpp"
#include "actzip/policy.hpp"
#include "actzip/registry.hpp"
#include "actzip/torch.hpp"
#include "actzip/torch_parts.hpp"
#include "base/backward.hpp"
#include "function_names.hpp"
#include "graphs.hpp"
#include "hooks/engine.hpp"
#include "layers.hpp"
#include "operators/function_table.hpp"
#include "operators/operator_info.hpp"
#include "operators/operator_table.hpp"
#include "operators/registered_operators.hpp"
#include "python/core_tables.hpp"
#include "python/python_objects.hpp"
#include "python/reports.hpp"
#include "python/session_options.hpp"
#include "scopes.hpp"

namespace py = pybind11;

namespace actzip::torch {
namespace {

using SessionPtr = std::shared_ptr<SessionImpl>;
using python::capsule_value;
using python::guarded;
using python::make_capsule;
using python::new_builtin;

constexpr const char* kSessionCapsule = "actzip.session";
constexpr const char* kPackedCapsule = "actzip.packed";

// The pair of hooks that marks our scopes on torch's stack. Our engine recognises it and calls C++ directly. If torch
// itself calls the pair, it does the same, more slowly.

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
    return THPVariable_Wrap(value->settled().unpack_as_tried());
  });
}

PyMethodDef kPackDefinition = {"actzip_pack", &pack_hook, METH_O, "Keeps a saved tensor in an actzip session."};
PyMethodDef kUnpackDefinition = {"actzip_unpack", &unpack_hook, METH_O, "Restores a tensor kept by actzip."};

/// Needs no GIL: the object is on the thread's stack of hooks and does not change.
SessionPtr resolve_hook(PyObject* hook) {
  if (Py_TYPE(hook) != &PyCFunction_Type) return nullptr;
  const auto* function = reinterpret_cast<const PyCFunctionObject*>(hook);
  if (function->m_ml != &kPackDefinition) return nullptr;
  return *capsule_value<SessionPtr>(function->m_self, kSessionCapsule);
}

void clear_exception() {
  const py::gil_scoped_acquire lock;
  PyErr_Clear();
}

std::pair<py::object, py::object> hook_pair(const Session& session) {
  const py::object self = make_capsule(SessionPtr(session.impl()), kSessionCapsule);
  return {new_builtin(kPackDefinition, self), new_builtin(kUnpackDefinition, self)};
}

/// Makes the next steps trials, in which the named sites are kept with noise.
void set_trial(const Session& session, std::uint64_t seed, const std::vector<std::string>& sites, bool observe) {
  actzip::Session& core = session.impl()->core();
  Trial trial{.seed = seed, .sites = {}, .observe = observe};
  for (const std::string& name : sites) trial.sites.push_back(core.site_named(name));
  core.set_trial(std::move(trial));
}

/// Replaces what was known of these sites.
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

/// Returns the statistics of each sample of the data set; None before the first step.
py::object sample_factors(const Session& session) {
  const at::Tensor factors = session.impl()->samples->factors();
  return factors.defined() ? py::reinterpret_steal<py::object>(THPVariable_Wrap(factors)) : py::none();
}

/// See actzip::Session::note_counted(). What an autograd function saves has no site before the function ends.
void note_counted(const Session& session, py::handle packed) {
  const auto* value = capsule_value<Packed>(packed.ptr(), kPackedCapsule);
  if (value == nullptr) throw py::error_already_set();
  actzip::Session& core = session.impl()->core();
  if (value->has_site()) core.note_counted(core.site_named(value->site()));
}

using SiteTuple = std::tuple<std::string, std::string, std::size_t, std::size_t, std::size_t>;

/// For each site of the last step, in order: (module, operator, bytes without the session, fewest bytes, bytes by the
/// table).
std::vector<SiteTuple> site_bytes(const Session& session) {
  std::vector<SiteTuple> sites;
  for (SiteBytes& site : session.impl()->core().site_bytes()) {
    sites.emplace_back(std::move(site.module), std::move(site.op), site.before, site.least, site.by_table);
  }
  return sites;
}

/// Returns the site of what the pack hook returned, and its codec or "as is", "shape only" or "recomputed".
std::pair<std::string, std::string> kept_as(py::handle packed) {
  const auto* capsule = capsule_value<Packed>(packed.ptr(), kPackedCapsule);
  if (capsule == nullptr) throw py::error_already_set();
  const Packed* const value = &capsule->settled();
  const auto how = [&]() -> std::string {
    switch (value->how()) {
      case Keep::as_is: return "as is";
      case Keep::shape_only: return "shape only";
      case Keep::recomputed: return "recomputed";
      case Keep::encoded: break;
    }
    return to_string(value->encoding().spec);
  };
  return {value->site(), how()};
}

/// Returns (low, high, restored, bytes of the low part, bytes of the high part).
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

/// The operator table: {"names", "slots": [(slots, use), ...], "nodes", "encoded_backward"} of each row.
std::vector<py::dict> operator_rows() {
  using namespace py::literals;  // NOLINT(google-build-using-namespace)
  std::vector<py::dict> rows;
  for (const OperatorRow& row : operator_table()) {
    std::vector<std::pair<std::string_view, std::string_view>> slots;
    for (const SlotUse& entry : row.slots) {
      if (!entry.slots.empty()) slots.emplace_back(entry.slots, to_string(entry.use));
    }
    rows.push_back(py::dict("names"_a = row.names, "slots"_a = slots, "nodes"_a = row.nodes,
                            "encoded_backward"_a = row.encoded_backward));
  }
  return rows;
}

/// The function table: (names, saves) of each row.
std::vector<std::pair<std::string_view, std::string_view>> function_rows() {
  std::vector<std::pair<std::string_view, std::string_view>> rows;
  for (const FunctionRow& row : function_table()) rows.emplace_back(row.names, row.saves);
  return rows;
}

}  // namespace
}  // namespace actzip::torch

PYBIND11_MODULE(_C, module) {
  using namespace actzip::torch;  // NOLINT(google-build-using-namespace): this is the list of what is bound
  set_session_of_hook(&resolve_hook);
  set_exception_forgetter(&clear_exception);
  set_function_namer(&python_function_name);
  set_checkpoint_finder(&is_python_checkpoint_saving);
  actzip::python::bind_core_tables(module);
  py::class_<Session> sessions(module, "Session");
  actzip::python::def_init(sessions);
  sessions.def("set_samples", &set_samples)
      .def("sample_factors", &sample_factors)
      .def("hook_pair", &hook_pair)
      .def("register_parameters",
           [](Session& session, const std::vector<at::Tensor>& tensors) { session.register_parameters(tensors); })
      .def("live_bytes", &Session::live_bytes)
      .def("is_guarding", [](const Session& session) { return session.impl()->is_guarding(); })
      .def("save_state", &Session::save_state)
      .def("load_state", &Session::load_state)
      .def("saves", [](const Session& session) { return session.impl()->core().saves(); })
      .def("adapts", [](const Session& session) { return session.impl()->core().adapts(); })
      .def("wants_measurement", [](const Session& session) { return session.impl()->core().wants_measurement(); })
      .def("take_notice", [](const Session& session) { return session.impl()->take_notice(); })
      .def("adds_much", [](const Session& session) { return session.impl()->core().adds_much(); })
      .def("set_trial", &set_trial, py::arg("seed"), py::arg("sites"), py::arg("observe"))
      .def("end_trial", [](const Session& session) { session.impl()->core().set_trial(std::nullopt); })
      .def("take_observation", [](const Session& session) { return session.impl()->take_observation(); })
      .def("learn", &learn)
      .def("set_measured_variance",
           [](const Session& session, double value) { session.impl()->core().set_measured_variance(value); })
      .def(
          "report_text", [](const Session& session, bool all) { return session.report().to_text(all); },
          py::arg("all") = false)
      .def("set_runs_again",
           [](const Session& session, bool any, bool changes) { session.impl()->set_runs_again(any, changes); })
      .def("note_counted", &note_counted)
      .def("site_bytes", &site_bytes)
      .def("held", [](const Session& session) { return session.impl()->core().held(); })
      .def("report_json", [](const Session& session) { return session.report().to_json(); });
  bind_scopes(module);
  module.def("kept_as", &kept_as);
  module.def("take_apart", &take_apart_by, py::arg("tensor"), py::arg("codec"), py::arg("seed"));
  module.def("operator_rows", &operator_rows);
  module.def("function_rows", &function_rows);
  module.def(
      "use_of", [](const std::string& schema, const std::string& slot) { return to_string(schema_use(schema, slot)); },
      py::arg("schema"), py::arg("slot"));
  module.def("register_operator", &register_operator, py::arg("name"), py::arg("slots"));
  bind_graphs(module);
  bind_layers(module);
  actzip::python::bind_reports(module);
}
