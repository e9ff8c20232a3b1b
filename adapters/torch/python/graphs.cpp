#include "graphs.hpp"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "actzip/codec.hpp"
#include "actzip/error.hpp"
#include "actzip/torch.hpp"
#include "compile/graph_gradients.hpp"
#include "compile/graph_policy.hpp"
#include "compile/graph_sessions.hpp"
#include "session/session_impl.hpp"

namespace py = pybind11;

namespace actzip::torch {

namespace {

constexpr std::array kKeepNames{"as is", "shape only", "recomputed", "encoded"};

using SizesAndStrides = std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>;
using SaverFields = std::tuple<std::string, std::string, std::string, int, std::vector<GraphShape>, std::vector<double>,
                               bool, bool, bool, bool>;

Shape shape_of(const SizesAndStrides& given) {
  const auto& [sizes, strides] = given;
  if (sizes.size() > kMaxRank || sizes.size() != strides.size())
    throw py::value_error("a shape of too many dimensions");
  Shape shape;
  shape.rank = static_cast<int>(sizes.size());
  std::ranges::copy(sizes, shape.sizes.begin());
  std::ranges::copy(strides, shape.strides.begin());
  return shape;
}

/// Returns what to keep of a tensor that a graph saves, as plain values.
py::dict decide(const Session& session, const std::string& dtype, const SizesAndStrides& shape,
                const std::vector<SaverFields>& fields) {
  using namespace py::literals;  // NOLINT(google-build-using-namespace)
  std::vector<GraphSaver> savers;
  for (const auto& field : fields) savers.push_back(std::make_from_tuple<GraphSaver>(field));
  if (savers.empty()) throw py::value_error("a tensor that is saved for nobody");
  const auto found = decide_for_graph(session.impl()->core(), {parse_dtype(dtype), shape_of(shape)}, savers);
  const Decision& decision = found.decision;
  return py::dict("keep"_a = kKeepNames.at(static_cast<std::size_t>(decision.keep)),
                  "codec"_a = to_string(decision.spec), "segments"_a = decision.segments.count,
                  "reason"_a = decision.reason, "cause"_a = to_string(decision.cause), "op"_a = found.op,
                  "slot"_a = found.slot, "module"_a = found.module, "use"_a = to_string(found.use));
}

}  // namespace

void bind_graphs(py::module_& module) {
  module.def("register_graph_operators", &register_graph_operators);
  py::class_<GraphSession, std::shared_ptr<GraphSession>>(module, "GraphSession")
      .def(py::init([](std::string options, const Session& session, std::uint64_t seed) {
        return std::make_shared<GraphSession>(std::move(options), session.impl()->core(), seed);
      }))
      .def("begin_step", &GraphSession::begin_step)
      .def_property_readonly("graphs_begun", &GraphSession::graphs_begun)
      .def("prepare", &GraphSession::prepare)
      .def("report_json", [](const GraphSession& session) { return session.report().to_json(); });
  module.def("set_default_graph_session", &set_default_graph_session);
  module.def("exchange_current_graph_session", &exchange_current_graph_session);
  module.def("decide", &decide, py::arg("session"), py::arg("dtype"), py::arg("shape"), py::arg("savers"));
  module.def("activation_gradients", [] {
    std::vector<std::pair<std::string, std::string>> found;
    for (auto& [name, approximate] : activation_gradients()) found.emplace_back(name, approximate);
    return found;
  });
  module.def("encoded_bytes",
             [](const std::string& codec, const std::string& dtype, std::int64_t elems, std::int64_t segments) {
               return encoded_bytes(parse_spec(codec), parse_dtype(dtype), elems, {.count = segments});
             });
}

}  // namespace actzip::torch
