// Turns Python's keyword arguments into the options of a session.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actzip/session.hpp"

namespace actzip::python {

/// Adds a constructor to a class that is constructed from SessionOptions. Its keywords are the names of their fields.
template <class Class>
void def_init(Class& cls) {
  namespace py = pybind11;
  cls.def(
      py::init([](std::string preset, std::optional<double> bits, std::int64_t min_elems, std::uint64_t seed, bool dry,
                  std::string only, const std::vector<std::pair<std::string, std::string>>& rules, std::string adapt,
                  std::int64_t interval, bool use_gradient, std::int64_t num_samples, std::string codec, int max_bits,
                  std::optional<bool> guard, std::string budget, std::string offload) {
        SessionOptions options{std::move(preset),
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
                               guard,
                               std::move(budget),
                               std::move(offload)};
        for (const auto& [sites, keep] : rules) options.rules.push_back({sites, keep});
        return std::make_unique<typename Class::type>(options);
      }),
      py::kw_only(), py::arg("preset"), py::arg("bits"), py::arg("min_elems"), py::arg("seed"), py::arg("dry"),
      py::arg("only"), py::arg("rules"), py::arg("adapt"), py::arg("interval"), py::arg("use_gradient"),
      py::arg("num_samples"), py::arg("codec"), py::arg("max_bits"), py::arg("guard"), py::arg("budget") = "",
      py::arg("offload") = "");
}

}  // namespace actzip::python
