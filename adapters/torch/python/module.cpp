// actzip._C: sessions, their hooks on torch's own stack, and module paths. No arithmetic, no policy.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "actzip/backend.hpp"
#include "actzip/error.hpp"
#include "actzip/levels.hpp"
#include "actzip/policy.hpp"
#include "actzip/registry.hpp"
#include "actzip/torch.hpp"
#include "actzip/torch_parts.hpp"
#include "actzip/version.hpp"
#include "base/backward.hpp"
#include "graphs.hpp"
#include "hooks/engine.hpp"
#include "layers.hpp"
#include "operators/operator_table.hpp"
#include "operators/registered_operators.hpp"
#include "python_objects.hpp"
#include "reports.hpp"
#include "scopes.hpp"

namespace py = pybind11;

namespace actzip::torch {
namespace {

using SessionPtr = std::shared_ptr<SessionImpl>;

constexpr const char* kSessionCapsule = "actzip.session";
constexpr const char* kPackedCapsule = "actzip.packed";

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

void clear_exception() {
  const py::gil_scoped_acquire lock;
  PyErr_Clear();
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

/// Site of what the pack hook gave, and its codec, or what else was done: "as is", "shape only", "recomputed".
std::pair<std::string, std::string> kept_as(py::handle packed) {
  const auto* value = capsule_value<Packed>(packed.ptr(), kPackedCapsule);
  if (value == nullptr) throw py::error_already_set();
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

/// The rows of the default policy as text, in their order: (use, reason).
std::vector<std::pair<std::string, std::string>> policy_rows() {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const PolicyRow& row : policy_table()) rows.emplace_back(to_string(row.use), row.reason);
  return rows;
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

py::dict variant_fields(const CodecInfo& info, const CodecSpec& spec) {
  using namespace py::literals;  // NOLINT(google-build-using-namespace)
  const Traits has = traits(spec);
  return py::dict(
      "spec"_a = to_string(spec), "bits"_a = code_bits(spec, info.encodes.front()),
      "expected_rel_sq_error"_a = expected_error(spec),
      "traits"_a = py::dict("exact"_a = has.exact, "byte_equal"_a = has.byte_equal, "unbiased"_a = has.unbiased,
                            "keeps_zeros"_a = has.keeps_zeros, "keeps_signs"_a = has.keeps_signs));
}

/// The registry: what `actzip codecs --json` prints of each codec.
std::vector<py::dict> codec_table() {
  using namespace py::literals;  // NOLINT(google-build-using-namespace)
  const auto names = [](std::span<const DType> dtypes) {
    std::vector<std::string> list;
    for (const DType dtype : dtypes) list.emplace_back(to_string(dtype));
    return list;
  };
  std::vector<py::dict> table;
  for (const CodecInfo& info : codecs()) {
    std::vector<py::dict> variants;
    for (const CodecSpec& spec : info.variants) variants.push_back(variant_fields(info, spec));
    table.push_back(py::dict("name"_a = info.name, "summary"_a = info.summary, "grammar"_a = info.grammar,
                             "encodes"_a = names(info.encodes), "decodes"_a = names(info.decodes),
                             "variants"_a = variants));
  }
  return table;
}

/// What this build and this machine can run, as actzip/backend.hpp tells it.
py::dict backends() {
  using namespace py::literals;  // NOLINT(google-build-using-namespace)
  std::vector<std::string> levels;
  for (const CpuLevel level : cpu_levels()) levels.emplace_back(to_string(level));
  const CudaStatus cuda = cuda_status();
  return py::dict("cpu_levels"_a = levels, "cpu_level"_a = to_string(cpu_level()), "cuda_built"_a = cuda.built,
                  "cuda_problem"_a = cuda.problem);
}

}  // namespace
}  // namespace actzip::torch

PYBIND11_MODULE(_C, module) {
  using namespace actzip::torch;  // NOLINT(google-build-using-namespace): this is the list of what is bound
  set_session_of_hook(&resolve_hook);
  set_exception_forgetter(&clear_exception);
  module.attr("version") = ACTZIP_VERSION_STRING;
  module.attr("format_version") = actzip::kFormatVersion;
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const actzip::Error& error) {
      PyErr_SetString(error.code() == actzip::ErrorCode::invalid_spec ? PyExc_ValueError : PyExc_RuntimeError,
                      error.what());
    }
  });
  py::class_<Session>(module, "Session")
      .def(py::init([](std::string preset, std::optional<double> bits, std::int64_t min_elems, std::uint64_t seed,
                       bool dry, std::string only, const std::vector<std::pair<std::string, std::string>>& rules,
                       std::string adapt, std::int64_t interval, bool use_gradient, std::int64_t num_samples,
                       std::string codec, int max_bits, std::optional<bool> guard) {
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
                                            max_bits,
                                            guard};
             for (const auto& [sites, keep] : rules) options.rules.push_back({sites, keep});
             return std::make_unique<Session>(options);
           }),
           py::kw_only(), py::arg("preset"), py::arg("bits"), py::arg("min_elems"), py::arg("seed"), py::arg("dry"),
           py::arg("only"), py::arg("rules"), py::arg("adapt"), py::arg("interval"), py::arg("use_gradient"),
           py::arg("num_samples"), py::arg("codec"), py::arg("max_bits"), py::arg("guard"))
      .def("set_samples", &set_samples)
      .def("sample_factors", &sample_factors)
      .def("hook_pair", &hook_pair)
      .def("register_parameters",
           [](Session& session, const std::vector<at::Tensor>& tensors) { session.register_parameters(tensors); })
      .def("live_bytes", &Session::live_bytes)
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
      .def("report_json", [](const Session& session) { return session.report().to_json(); });
  bind_scopes(module);
  module.def("kept_as", &kept_as);
  module.def("take_apart", &take_apart_by, py::arg("tensor"), py::arg("codec"), py::arg("seed"));
  module.def("policy_rows", &policy_rows);
  module.def("operator_rows", &operator_rows);
  module.def(
      "use_of", [](const std::string& schema, const std::string& slot) { return to_string(schema_use(schema, slot)); },
      py::arg("schema"), py::arg("slot"));
  module.def("register_operator", &register_operator, py::arg("name"), py::arg("slots"));
  module.def("levels", &level_table);
  module.def("codecs", &codec_table);
  module.def("backends", &backends);
  bind_graphs(module);
  bind_layers(module);
  bind_reports(module);
  module.def("expected_error",
             [](const std::string& codec) { return actzip::expected_error(actzip::parse_spec(codec)); });
}
