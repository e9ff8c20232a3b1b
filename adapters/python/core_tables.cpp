#include "core_tables.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actzip/backend.hpp"
#include "actzip/codec.hpp"
#include "actzip/error.hpp"
#include "actzip/levels.hpp"
#include "actzip/memory.hpp"
#include "actzip/policy.hpp"
#include "actzip/registry.hpp"
#include "actzip/version.hpp"

namespace py = pybind11;

namespace actzip::python {

namespace {

/// The rows of the default policy, in order: (use, reason).
std::vector<std::pair<std::string, std::string>> policy_rows() {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const PolicyRow& row : policy_table()) rows.emplace_back(to_string(row.use), row.reason);
  return rows;
}

/// All levels, as dicts with the fields of actzip::Level.
std::vector<py::dict> level_table() {
  std::vector<py::dict> table;
  for (const Level& level : levels()) {
    using namespace py::literals;  // NOLINT(google-build-using-namespace)
    table.push_back(py::dict("name"_a = level.name, "runs_as"_a = level.runs_as, "to_host"_a = level.to_host,
                             "bits"_a = level.bits, "adapt"_a = level.adapt, "reach"_a = static_cast<int>(level.reach),
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

/// The registry of codecs: for each codec, what `actzip codecs --json` prints.
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

/// What this build and this machine can run: see actzip/backend.hpp.
py::dict backends() {
  using namespace py::literals;  // NOLINT(google-build-using-namespace)
  std::vector<std::string> levels;
  for (const CpuLevel level : cpu_levels()) levels.emplace_back(to_string(level));
  const CudaStatus cuda = cuda_status();
  return py::dict("cpu_levels"_a = levels, "cpu_level"_a = to_string(cpu_level()), "cuda_built"_a = cuda.built,
                  "cuda_problem"_a = cuda.problem);
}

/// Returns the bytes that a codec makes of a tensor in host memory, which is given by its address. Strides are in
/// elements.
py::bytes encode_bytes(std::uintptr_t address, const std::string& dtype, const std::vector<std::int64_t>& sizes,
                       const std::vector<std::int64_t>& strides, const std::string& codec, std::uint64_t seed) {
  if (sizes.size() != strides.size() || sizes.size() > kMaxRank) {
    throw py::value_error("encode_bytes: " + std::to_string(sizes.size()) + " sizes and " +
                          std::to_string(strides.size()) + " strides (allowed: as many of both, up to 8)");
  }
  ConstTensorView view;
  view.data = reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr): so it comes from Python
  view.dtype = parse_dtype(dtype);
  view.shape.rank = static_cast<int>(sizes.size());
  std::ranges::copy(sizes, view.shape.sizes.begin());
  std::ranges::copy(strides, view.shape.strides.begin());
  const CodecSpec spec = parse_spec(codec);
  constexpr std::size_t kAligned = 16;
  const std::size_t bytes = encoded_bytes(spec, view.dtype, view.shape);
  std::vector<std::byte> room(bytes + kAligned);
  std::byte* const data = room.data() + (kAligned - reinterpret_cast<std::uintptr_t>(room.data()) % kAligned);
  alignas(4) std::array<std::byte, 4> overflow{};
  encode(spec, view, {data, bytes}, Seed(seed), Stream(), {}, {overflow.data(), overflow.size()});
  return {reinterpret_cast<const char*>(data), bytes};
}

}  // namespace

void bind_core_tables(py::module_& module) {
  module.attr("version") = ACTZIP_VERSION_STRING;
  module.attr("format_version") = kFormatVersion;
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      const bool is_wrong_value = error.code() == ErrorCode::invalid_spec || error.code() == ErrorCode::invalid_state;
      PyErr_SetString(is_wrong_value ? PyExc_ValueError : PyExc_RuntimeError, error.what());
    }
  });
  module.def("policy_rows", &policy_rows);
  module.def("levels", &level_table);
  module.def("codecs", &codec_table);
  module.def("backends", &backends);
  module.def("is_in_memory", &is_in_memory, py::arg("folder"));
  module.def("encode_bytes", &encode_bytes, py::arg("address"), py::arg("dtype"), py::arg("sizes"), py::arg("strides"),
             py::arg("codec"), py::arg("seed") = 0);
  module.def("expected_error", [](const std::string& codec) { return expected_error(parse_spec(codec)); });
}

}  // namespace actzip::python
