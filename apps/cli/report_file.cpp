#include "report_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <variant>

#include "actzip/error.hpp"
#include "actzip/report.hpp"
#include "actzip/spec.hpp"
#include "data/shallow_json.hpp"

namespace actzip::cli {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostElems = std::int64_t{1} << 48;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

/// Returns a member of `object`. Throws if it is missing or of another type.
template <class T>
T member(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) fail(fmt::format("'{}' is missing", key));
  try {
    return found->get<T>();
  } catch (const Json::exception&) {
    fail(fmt::format("'{}' is {}", key, found->dump()));
  }
}

/// A limit that keeps products and the sum over all sites from overflowing.
constexpr std::size_t kMostBytes = std::size_t{1} << 54;

std::size_t bytes_member(const Json& site, const char* key) {
  const auto found = site.find(key);
  if (found != site.end() && (!found->is_number_unsigned() || found->get<std::size_t>() > kMostBytes)) {
    fail(fmt::format("'{}' is {} (allowed: 0 to 2^54 bytes)", key, found->dump()));
  }
  return member<std::size_t>(site, key);
}

/// Prefers the bytes to the shape: of an expanded tensor, only the unique elements are kept.
std::int64_t elems_of(const Json& site, DType dtype) {
  const std::size_t bytes = bytes_member(site, "bytes_before");
  if (bytes > 0) return static_cast<std::int64_t>(bytes / dtype_bytes(dtype));
  std::int64_t elems = 1;
  for (const Json& size : member<Json::array_t>(site, "shape")) {
    const std::int64_t extent = size.is_number_unsigned() ? size.get<std::int64_t>() : 0;
    if (extent < 1 || elems > kMostElems / extent) fail(fmt::format("'shape' is {}", site["shape"].dump()));
    elems *= extent;
  }
  return elems;
}

std::optional<double> sensitivity_of(const Json& site) {
  const auto found = site.find("sensitivity");
  if (found == site.end() || found->is_null()) return std::nullopt;
  if (!found->is_number() || !(found->get<double>() >= 0.0) || !(found->get<double>() <= 1e100)) {
    fail(fmt::format("'sensitivity' is {} (allowed: 0 to 1e100)", found->dump()));
  }
  return found->get<double>();
}

/// Returns the spec that encodes the site's values; none if nothing is encoded, or if its codec offers no trade-off.
/// Kinds of sites that are unknown here are fine: the plan needs only their bytes.
std::optional<CodecSpec> value_codec(const Json& site) {
  if (member<std::string>(site, "kind") != to_string(SiteKind::encoded)) return std::nullopt;
  const CodecSpec spec = parse_spec(member<std::string>(site, "codec"));
  const bool trades = std::holds_alternative<Rotated>(spec) || std::holds_alternative<Affine>(spec);
  return trades ? std::optional(spec) : std::nullopt;
}

void add_site(const Json& site, ReportFile& report) {
  if (!site.is_object()) fail("it is no object");
  const auto spec = value_codec(site);
  if (!spec) {
    ++report.other_sites;
    report.other_bytes += bytes_member(site, "bytes_after");
    if (report.other_bytes > kMostBytes) fail("it and those before it keep more than 2^54 bytes");
    return;
  }
  PlannedSite planned;
  planned.name = member<std::string>(site, "site");
  planned.dtype = parse_dtype(member<std::string>(site, "dtype"));
  planned.elems = elems_of(site, planned.dtype);
  planned.sensitivity = sensitivity_of(site);
  const auto* rotated = std::get_if<Rotated>(&*spec);
  planned.mask_plane = rotated != nullptr && rotated->mask_plane;
  if (planned.elems < 1) fail("it has no elements");
  report.sites.push_back(std::move(planned));
}

Json parse(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) fail(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
  try {
    return data::parse_shallow_json(file);
  } catch (const std::exception& error) {
    fail(fmt::format("{} is no JSON: {}", path.string(), error.what()));
  }
}

}  // namespace

ReportFile read_report(const std::filesystem::path& path) {
  const Json json = parse(path);
  if (!json.is_object() || !json.contains("sites") || !json["sites"].is_array()) {
    fail(fmt::format("{} is no report of a session: it has no list 'sites'", path.string()));
  }
  ReportFile report;
  std::size_t number = 0;
  for (const Json& site : json["sites"]) {
    try {
      add_site(site, report);
    } catch (const std::runtime_error& error) {
      fail(fmt::format("{}, site {}: {}", path.string(), number, error.what()));
    }
    ++number;
  }
  if (report.sites.empty()) {
    fail(fmt::format("{} has nothing to plan: none of its {} sites is kept by rotated or affine", path.string(),
                     number));
  }
  return report;
}

}  // namespace actzip::cli
