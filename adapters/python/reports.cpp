#include "reports.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actzip/report.hpp"

namespace py = pybind11;

namespace actzip::python {

namespace {

/// Reads the values of a Python dict whose keys are the names of C++ fields.
class Fields {
 public:
  explicit Fields(const py::handle& dict) : dict_(py::cast<py::dict>(dict)) {}

  template <class T>
  void read(const char* name, T& value) const {
    const py::object given = dict_[name];
    try {
      value = given.cast<T>();
    } catch (const py::cast_error&) {
      throw py::value_error(std::string(name) + " is a " + Py_TYPE(given.ptr())->tp_name);
    }
  }

  template <class T>
  [[nodiscard]] T get(const char* name) const {
    T value;
    read(name, value);
    return value;
  }

  /// Returns nothing if the value is None.
  template <class T>
  std::optional<T> part(const char* name, T (*make)(const Fields&)) const {
    const py::object value = dict_[name];
    return value.is_none() ? std::nullopt : std::optional<T>(make(Fields(value)));
  }

 private:
  py::dict dict_;
};

SampleBits sample_bits_from(const Fields& fields) {
  SampleBits bits;
  fields.read("samples", bits.samples);
  fields.read("fewest", bits.fewest);
  fields.read("mean", bits.mean);
  fields.read("most", bits.most);
  fields.read("error", bits.error);
  return bits;
}

SampleStatistics statistics_from(const Fields& fields) {
  SampleStatistics statistics;
  fields.read("samples", statistics.samples);
  fields.read("bytes", statistics.bytes);
  return statistics;
}

PlanReport plan_from(const Fields& fields) {
  PlanReport plan;
  fields.read("budget_bits", plan.budget_bits);
  fields.read("average_bits", plan.average_bits);
  fields.read("plans", plan.plans);
  fields.read("predicted_bytes", plan.predicted_bytes);
  fields.read("predicted_variance", plan.predicted_variance);
  fields.read("measured_variance", plan.measured_variance);
  fields.read("gradient_variance", plan.gradient_variance);
  return plan;
}

BudgetReport budget_from(const Fields& fields) {
  BudgetReport budget;
  fields.read("asked", budget.asked);
  fields.read("bytes", budget.bytes);
  fields.read("most_held", budget.most_held);
  return budget;
}

OffloadReport offload_from(const Fields& fields) {
  OffloadReport offload;
  fields.read("copied_out", offload.copied_out);
  fields.read("copied_in", offload.copied_in);
  fields.read("fetches", offload.fetches);
  fields.read("waits", offload.waits);
  return offload;
}

Cause cause_from(const std::string& text) {
  const auto* const found = std::ranges::find(kCauses, text, [](Cause cause) { return to_string(cause); });
  return found == kCauses.end() ? Cause::none : *found;
}

/// Sets sizes only, because a report has no strides.
Shape shape_from(const std::vector<std::int64_t>& sizes) {
  if (sizes.size() > kMaxRank) throw py::value_error("a shape of " + std::to_string(sizes.size()) + " dimensions");
  Shape shape;
  shape.rank = static_cast<int>(sizes.size());
  std::ranges::copy(sizes, shape.sizes.begin());
  return shape;
}

SiteReport site_from(const Fields& fields) {
  SiteReport site;
  fields.read("site", site.site);
  fields.read("codec", site.codec);
  fields.read("kept_by", site.kept_by);
  fields.read("bytes_before", site.bytes_before);
  fields.read("bytes_after", site.bytes_after);
  fields.read("bytes_offloaded", site.bytes_offloaded);
  fields.read("reason", site.reason);
  fields.read("sensitivity", site.sensitivity);
  fields.read("variance", site.variance);
  site.shape = shape_from(fields.get<std::vector<std::int64_t>>("shape"));
  site.dtype = parse_dtype(fields.get<std::string>("dtype"));
  site.sample_bits = fields.part("sample_bits", &sample_bits_from);
  site.cause = cause_from(fields.get<std::string>("cause"));
  return site;
}

Report report_from(const Fields& fields) {
  Report report;
  fields.read("preset", report.preset);
  fields.read("runs_as", report.runs_as);
  fields.read("dry", report.dry);
  fields.read("steps", report.steps);
  fields.read("bytes_before", report.bytes_before);
  fields.read("bytes_after", report.bytes_after);
  fields.read("bytes_offloaded", report.bytes_offloaded);
  fields.read("index_overflow", report.index_overflow);
  report.plan = fields.part("plan", &plan_from);
  report.budget = fields.part("budget", &budget_from);
  report.offload = fields.part("offload", &offload_from);
  report.sample_statistics = fields.part("sample_statistics", &statistics_from);
  for (const py::object& site : fields.get<std::vector<py::object>>("sites"))
    report.sites.push_back(site_from(Fields(site)));
  return report;
}

}  // namespace

void bind_reports(py::module_& module) {
  module.def(
      "report_text", [](const py::dict& report, bool all) { return report_from(Fields(report)).to_text(all); },
      py::arg("report"), py::arg("all"));
}

}  // namespace actzip::python
