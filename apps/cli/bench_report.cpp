#include "bench_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <nlohmann/json.hpp>
#include <variant>

#include "build_info.hpp"
#include "table.hpp"

namespace actzip::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string_view device_name(DeviceKind kind) { return kind == DeviceKind::cuda ? "cuda" : "cpu"; }

std::string count_text(std::int64_t elems) {
  const auto value = static_cast<std::uint64_t>(elems);
  return std::has_single_bit(value) ? fmt::format("2^{}", std::countr_zero(value)) : fmt::format("{}", elems);
}

std::string header(const BenchResult& result) {
  std::vector<std::string> sizes;
  for (const BenchRow& row : result.rows) {
    std::string text = count_text(row.bench_case.elems);
    if (std::find(sizes.begin(), sizes.end(), text) == sizes.end()) sizes.push_back(std::move(text));
  }
  return fmt::format(
      "actzip {}, commit {}, {}\n{}: {}{}{}\n{} elements; medians of {}; share: of a plain copy's bandwidth\n",
      ACTZIP_VERSION_STRING, kCommit, result.date, device_name(result.device), result.facts.name,
      result.facts.driver.empty() ? "" : ", driver ", result.facts.driver, fmt::join(sizes, " and "), result.repeats);
}

/// Whether `value` differs between rows; a column that is the same in every row is left out.
template <class Rows, class Value>
bool varies(const Rows& rows, Value value) {
  return std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return value(row) != value(rows.front()); });
}

std::string level_text(const BenchRow& row) { return row.level ? std::string(to_string(*row.level)) : ""; }

std::string rows_text(const BenchResult& result) {
  constexpr auto kRight = Table::Align::right;
  const auto& rows = result.rows;
  const bool sizes = varies(rows, [](const BenchRow& row) { return row.bench_case.elems; });
  const bool cpu = result.device == DeviceKind::cpu;
  std::vector<Table::Column> columns{{"codec"}, {"type"}};
  if (sizes) columns.push_back({"elements", kRight});
  if (cpu) columns.insert(columns.end(), {{"level"}, {"threads", kRight}});
  for (const char* title :
       {"bytes/elem", "rel sq error", "bias", "copy GB/s", "encode GB/s", "share", "decode GB/s", "share"}) {
    columns.push_back({title, kRight});
  }
  Table table(std::move(columns));
  for (const BenchRow& row : rows) {
    std::vector<std::string> cells{row.bench_case.name(), std::string(to_string(row.bench_case.dtype))};
    if (sizes) cells.push_back(count_text(row.bench_case.elems));
    if (cpu) cells.insert(cells.end(), {level_text(row), fmt::format("{}", row.threads)});
    cells.insert(cells.end(),
                 {fmt::format("{:.4f}", row.bytes_per_element()), fmt::format("{:.4g}", row.fidelity.rel_sq_error),
                  fmt::format("{:+.1e}", row.fidelity.bias), fmt::format("{:.1f}", row.copy_gbps()),
                  fmt::format("{:.1f}", row.encode_gbps()), fmt::format("{:.3f}", row.encode_share()),
                  fmt::format("{:.1f}", row.decode_gbps()), fmt::format("{:.3f}", row.decode_share())});
    table.add(std::move(cells));
  }
  return table.text();
}

std::string launch_text(const BenchResult& result) {
  constexpr auto kRight = Table::Align::right;
  Table table({{"codec"}, {"type"}, {"encode us", kRight}, {"decode us", kRight}, {"empty kernel us", kRight}});
  for (const LaunchRow& row : result.launch_rows) {
    table.add({row.bench_case.name(), std::string(to_string(row.bench_case.dtype)),
               fmt::format("{:.2f}", row.encode_us), fmt::format("{:.2f}", row.decode_us),
               fmt::format("{:.2f}", row.empty_us)});
  }
  return fmt::format("{} elements, one call of a queue:\n{}", count_text(result.launch_rows.front().bench_case.elems),
                     table.text());
}

/// Bits of a code; with segment_bits, the mean over the segments.
Json bits_json(const BenchCase& item) {
  if (item.segment_bits.empty()) return code_bits(item.spec, item.dtype);
  const Segments segments = item.segments();
  return static_cast<double>(segments.total_bits) / static_cast<double>(segments.count);
}

/// The rounding of a codec, or null for codecs without one.
Json rounding_of(const CodecSpec& spec) {
  return std::visit(
      [](const auto& codec) -> Json {
        if constexpr (requires { codec.rounding; }) return to_string(codec.rounding);
        return nullptr;
      },
      spec);
}

Json case_json(const BenchCase& item, DeviceKind device) {
  return {{"codec", codec_info(item.spec).name},
          {"spec", item.name()},
          {"bits", bits_json(item)},
          {"rounding", rounding_of(item.spec)},
          {"dtype", to_string(item.dtype)},
          {"device", device_name(device)},
          {"elements", item.elems}};
}

Json row_json(const BenchRow& row, DeviceKind device) {
  Json json = case_json(row.bench_case, device);
  const bool cpu = device == DeviceKind::cpu;
  json["threads"] = cpu ? Json(row.threads) : Json(nullptr);
  json["level"] = cpu ? Json(level_text(row)) : Json(nullptr);
  json["bytes_per_element"] = row.bytes_per_element();
  json["encode_share"] = row.encode_share();
  json["decode_share"] = row.decode_share();
  json["encode_gbps"] = row.encode_gbps();
  json["decode_gbps"] = row.decode_gbps();
  json["copy_gbps"] = row.copy_gbps();
  json["encode_ms"] = row.encode_ms;
  json["decode_ms"] = row.decode_ms;
  json["copy_ms"] = row.copy_ms;
  json["rel_sq_error"] = row.fidelity.rel_sq_error;
  json["expected_rel_sq_error"] = row.bench_case.expected_error();
  json["bias"] = row.fidelity.bias;
  return json;
}

}  // namespace

std::string as_text(const BenchResult& result) {
  const std::string text = fmt::format("{}\n{}", header(result), rows_text(result));
  return result.launch_rows.empty() ? text : fmt::format("{}\n{}", text, launch_text(result));
}

std::string as_json(const BenchResult& result) {
  Json json;
  json["meta"] = {{"program", "actzip bench codec"},
                  {"version", ACTZIP_VERSION_STRING},
                  {"format_version", kFormatVersion},
                  {"commit", kCommit},
                  {"date", result.date},
                  {"compiler", kCompiler},
                  {"cuda_compiler", kCudaCompiler},
                  {"build_type", kBuildType},
                  {"device", device_name(result.device)},
                  {"device_name", result.facts.name},
                  {"driver", result.facts.driver},
                  {"cache_bytes", result.facts.cache_bytes},
                  {"repeats", result.repeats}};
  json["rows"] = Json::array();
  for (const BenchRow& row : result.rows) json["rows"].push_back(row_json(row, result.device));
  json["launch_rows"] = Json::array();
  for (const LaunchRow& row : result.launch_rows) {
    Json item = case_json(row.bench_case, result.device);
    item["encode_us"] = row.encode_us;
    item["decode_us"] = row.decode_us;
    item["empty_us"] = row.empty_us;
    json["launch_rows"].push_back(std::move(item));
  }
  return json.dump(2) + "\n";
}

}  // namespace actzip::cli
