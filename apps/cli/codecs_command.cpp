// `actzip codecs`: the registry as a table.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "actzip/actzip.hpp"
#include "commands.hpp"
#include "table.hpp"

namespace actzip::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The traits with their names, in the order of printing.
std::vector<std::pair<std::string_view, bool>> named(const Traits& traits) {
  return {{"exact", traits.exact},
          {"byte-equal", traits.byte_equal},
          {"unbiased", traits.unbiased},
          {"keeps zeros", traits.keeps_zeros},
          {"keeps signs", traits.keeps_signs}};
}

std::string traits_text(const CodecSpec& spec) {
  std::vector<std::string_view> names;
  for (const auto& [name, has] : named(traits(spec))) {
    if (has) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<std::string_view> type_names(std::span<const DType> dtypes) {
  std::vector<std::string_view> names;
  for (const DType dtype : dtypes) names.push_back(to_string(dtype));
  return names;
}

/// Formats a codec's widths: "1-8", "1,2,4,8,16,32", or "type's" for `copy`, which has the element type's width.
std::string widths_text(const CodecInfo& info) {
  std::vector<int> widths;
  for (const CodecSpec& spec : info.variants) {
    if (std::holds_alternative<Copy>(spec)) return "type's";
    widths.push_back(code_bits(spec, info.encodes.front()));
  }
  std::sort(widths.begin(), widths.end());
  widths.erase(std::unique(widths.begin(), widths.end()), widths.end());
  const bool run = widths.size() > 2 && widths.back() - widths.front() + 1 == static_cast<int>(widths.size());
  return run ? fmt::format("{}-{}", widths.front(), widths.back()) : fmt::format("{}", fmt::join(widths, ","));
}

std::string codecs_text() {
  Table table({{"codec"}, {"bits"}, {"takes"}, {"gives"}, {"what it is"}});
  for (const CodecInfo& info : codecs()) {
    const auto types = [](std::span<const DType> dtypes) {
      return dtypes.size() > 6 ? std::string("any") : fmt::format("{}", fmt::join(type_names(dtypes), " "));
    };
    table.add({std::string(info.name), widths_text(info), types(info.encodes), types(info.decodes),
               std::string(info.summary)});
  }
  return table.text();
}

/// Names a variant without its bits: variants that differ only in bits share a line.
std::string family_name(const CodecSpec& spec) {
  if (const auto* affine = std::get_if<Affine>(&spec)) return fmt::format("affine:B:{}", to_string(affine->rounding));
  if (const auto* rotated = std::get_if<Rotated>(&spec)) return rotated->mask_plane ? "rotated:B:mask" : "rotated:B";
  if (std::holds_alternative<Index>(spec)) return "index:bound=N";
  if (const auto* dual = std::get_if<Dual>(&spec)) return fmt::format("dual:B:{}", to_string(dual->rounding));
  return to_string(spec);
}

struct Family {
  std::string name;
  std::string traits;
  std::map<int, double> error_by_bits;
};

std::vector<Family> families() {
  std::vector<Family> list;
  for (const CodecInfo& info : codecs()) {
    for (const CodecSpec& spec : info.variants) {
      const std::string name = family_name(spec);
      if (list.empty() || list.back().name != name) list.push_back({name, traits_text(spec), {}});
      if (traits(spec).exact) continue;
      list.back().error_by_bits[code_bits(spec, info.encodes.front())] = expected_error(spec);
    }
  }
  return list;
}

std::string errors_text() {
  const std::vector<Family> list = families();
  std::set<int> widths;
  for (const Family& family : list) {
    for (const auto& [bits, error] : family.error_by_bits) widths.insert(bits);
  }
  std::vector<Table::Column> columns{{"spec"}};
  for (const int bits : widths) columns.push_back({fmt::format("B={}", bits), Table::Align::right});
  columns.push_back({"traits"});
  Table table(std::move(columns));
  for (const Family& family : list) {
    std::vector<std::string> cells{family.name};
    for (const int bits : widths) {
      const auto error = family.error_by_bits.find(bits);
      cells.push_back(error == family.error_by_bits.end() ? "" : fmt::format("{:.3g}", error->second));
    }
    cells.push_back(family.traits);
    table.add(std::move(cells));
  }
  return table.text();
}

void print_tables() {
  fmt::print(
      "{}\nExpected relative squared error on Gaussian data by bits, and what else may be relied upon:\n{}\n"
      "How a spec is written:\n",
      codecs_text(), errors_text());
  for (const CodecInfo& info : codecs()) fmt::print("  {}\n", info.grammar);
}

Json variant_json(const CodecInfo& info, const CodecSpec& spec) {
  Json json{{"spec", to_string(spec)},
            {"bits", code_bits(spec, info.encodes.front())},
            {"expected_rel_sq_error", expected_error(spec)}};
  for (const auto& [name, has] : named(traits(spec))) {
    std::string key(name);
    std::replace_if(key.begin(), key.end(), [](char c) { return c == ' ' || c == '-'; }, '_');
    json["traits"][key] = has;
  }
  return json;
}

void print_json() {
  Json json{{"version", ACTZIP_VERSION_STRING}, {"format_version", kFormatVersion}, {"codecs", Json::array()}};
  for (const CodecInfo& info : codecs()) {
    Json item{{"name", info.name},
              {"summary", info.summary},
              {"grammar", info.grammar},
              {"encodes", type_names(info.encodes)},
              {"decodes", type_names(info.decodes)},
              {"variants", Json::array()}};
    for (const CodecSpec& spec : info.variants) item["variants"].push_back(variant_json(info, spec));
    json["codecs"].push_back(std::move(item));
  }
  fmt::print("{}\n", json.dump(2));
}

}  // namespace

void add_codecs_command(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("codecs", "List the codecs: widths, element types, errors, traits.");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print JSON, one entry for each variant");
  command->footer(
      "Examples:\n"
      "  actzip codecs\n"
      "  actzip codecs --json | jq '.codecs[].variants[].spec'");
  command->callback([&action, json] {
    action = [json] {
      *json ? print_json() : print_tables();
      return 0;
    };
  });
}

}  // namespace actzip::cli
