// `actzip bench codec`: bytes, error and speed of the codecs.
#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actzip/actzip.hpp"
#include "bench_device.hpp"
#include "bench_measure.hpp"
#include "bench_plan.hpp"
#include "bench_report.hpp"
#include "commands.hpp"
#include "machine.hpp"
#include "output_file.hpp"
#include "progress.hpp"

namespace actzip::cli {
namespace {

/// The options as typed.
struct BenchOptions {
  std::string device = "auto";
  std::string json;
  bool quick = false;
  std::vector<std::string> specs;
  std::vector<std::string> dtypes;
  std::string elems;
  std::string large;
  int repeats = 0;
  std::vector<std::string> threads;
  std::string levels = "best";
};

/// Parses a count from 1 to 2^40, written out or as a power of two ("2^28").
std::optional<std::int64_t> parse_count(const std::string& text) {
  const std::size_t digits_at = text.starts_with("2^") ? 2 : 0;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + digits_at, text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (digits_at != 0) value = value <= 40 ? std::int64_t{1} << value : kMost + 1;
  return value >= 1 && value <= kMost ? std::optional(value) : std::nullopt;
}

std::string check_count(const std::string& text) {
  if (parse_count(text)) return {};
  return fmt::format("'{}' is no number of elements: write 1 to 2^40, as 1048576 or 2^20", text);
}

std::string check_threads(const std::string& text) {
  const auto count = parse_count(text);
  if (text == "all" || (count && *count <= 4096)) return {};
  return fmt::format("'{}' threads: write 'all' or a number from 1 to 4096", text);
}

/// Makes a CLI11 validator of a parser: it returns the library's error message, or an empty string.
template <class Parse>
auto checked_by(Parse parse) {
  return [parse](const std::string& text) -> std::string {
    try {
      (void)parse(text);
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  };
}

BenchRequest make_request(const BenchOptions& options) {
  BenchRequest request;
  const bool cuda = options.device == "cuda" || (options.device == "auto" && cuda_status().problem.empty());
  request.device = cuda ? DeviceKind::cuda : DeviceKind::cpu;
  request.quick = options.quick;
  for (const std::string& text : options.specs) request.specs.push_back(parse_spec(text));
  for (const std::string& text : options.dtypes) request.dtypes.push_back(parse_dtype(text));
  if (!options.elems.empty()) request.elems = parse_count(options.elems);
  if (!options.large.empty()) request.large_elems = parse_count(options.large);
  if (options.repeats > 0) request.repeats = options.repeats;
  request.threads = options.threads;
  request.levels = options.levels;
  return request;
}

std::string step_text(const BenchCase& item) {
  return fmt::format("{} {}, {} elements", item.name(), to_string(item.dtype), item.elems);
}

void measure_on_cpu(const BenchPlan& plan, Progress& progress, BenchResult& result) {
  const CpuLevel level_before = cpu_level();
  for (const CpuSetting& setting : plan.settings) {
    set_cpu_level(setting.level);
    const auto device = make_cpu_device(setting.threads);
    result.facts = device->facts();
    for (const BenchCase& item : plan.cases) {
      progress.step(fmt::format("{}, {}, threads: {}", step_text(item), to_string(setting.level), setting.threads));
      result.rows.push_back(measure(*device, item, plan.repeats));
      result.rows.back().level = setting.level;
    }
  }
  set_cpu_level(level_before);
}

void measure_on_cuda(const BenchPlan& plan, Progress& progress, BenchResult& result) {
  const auto device = make_cuda_device();
  result.facts = device->facts();
  for (const BenchCase& item : plan.cases) {
    progress.step(step_text(item));
    result.rows.push_back(measure(*device, item, plan.repeats));
  }
  for (const BenchCase& item : plan.launch_cases) {
    progress.step(step_text(item));
    result.launch_rows.push_back(measure_launch(*device, item, plan.repeats));
  }
}

BenchResult run_plan(const BenchPlan& plan, DeviceKind device) {
  BenchResult result;
  result.device = device;
  result.date = utc_now();
  result.repeats = plan.repeats;
  const bool cuda = device == DeviceKind::cuda;
  Progress progress(plan.cases.size() * (cuda ? 1 : plan.settings.size()) + plan.launch_cases.size());
  cuda ? measure_on_cuda(plan, progress, result) : measure_on_cpu(plan, progress, result);
  return result;
}

int run_bench(const BenchOptions& options) {
  const BenchRequest request = make_request(options);
  const BenchPlan plan = make_plan(request);
  if (request.device == DeviceKind::cuda) {
    if (const CudaStatus status = cuda_status(); !status.problem.empty()) {
      throw Error(ErrorCode::backend_unavailable, status.problem);
    }
  }
  std::optional<OutputFile> file;
  if (!options.json.empty() && options.json != "-") file.emplace(options.json);

  const BenchResult result = run_plan(plan, request.device);
  fmt::print("{}", options.json == "-" ? as_json(result) : as_text(result));
  if (file) {
    file->commit(as_json(result));
    fmt::print(stderr, "written to {}\n", options.json);
  }
  return 0;
}

void add_options(CLI::App& command, BenchOptions& options) {
  command.add_option("--device", options.device, "cpu or cuda; cuda if it works here, when left out")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  command.add_option("--json", options.json, "Also write the rows to this file; '-' prints them instead of the table")
      ->type_name("FILE");
  command.add_flag("--quick", options.quick, "A short list and small tensors: some seconds");
  command.add_option("--codec", options.specs, "Measure these codecs only; see 'actzip codecs'")
      ->check(CLI::Validator(checked_by([](const std::string& text) { return parse_spec(text); }), ""))
      ->type_name("SPEC");
  command.add_option("--dtype", options.dtypes, "Measure these element types only: f32 bf16 f16 bool i32 i64 ...")
      ->check(CLI::Validator(checked_by([](const std::string& text) { return parse_dtype(text); }), ""))
      ->type_name("TYPE");
  command.add_option("--elements", options.elems, "Elements of a tensor; 2^24 on cpu, 2^28 on cuda, when left out")
      ->check(CLI::Validator(check_count, ""))
      ->type_name("N");
  command.add_option("--large", options.large, "Some rows more with so many elements: 2^32 passes every 32-bit count")
      ->check(CLI::Validator(check_count, ""))
      ->type_name("N");
  command.add_option("--repeats", options.repeats, "Timed runs, of which the median is given; 9 on cpu, 21 on cuda")
      ->check(CLI::Range(1, 10000))
      ->type_name("N");
  const auto cpu_only = [&](CLI::Option* option) { option->group("For cpu"); };
  cpu_only(command.add_option("--threads", options.threads, "'all' or numbers; 1 and all, when left out")
               ->check(CLI::Validator(check_threads, ""))
               ->type_name("N|all"));
  cpu_only(command.add_option("--levels", options.levels, "Instruction sets: best, all, or one of base, avx2, avx512")
               ->check(CLI::IsMember({"best", "all", "base", "avx2", "avx512"})));
}

}  // namespace

void add_bench_command(CLI::App& program, Action& action) {
  CLI::App* bench = program.add_subcommand("bench", "Measure: bytes, error and speed of codecs, speed of loading.");
  bench->require_subcommand(0, 1);
  CLI::App* codec = bench->add_subcommand("codec", "Encode and decode, against a plain copy measured in the same run.");
  const auto options = std::make_shared<BenchOptions>();
  add_options(*codec, *options);
  codec->footer(
      "Every row is verified before it is timed. A share is (bytes read + bytes written) a second, divided by the "
      "same\n"
      "of a copy of the source. docs/benchmarks.md explains the columns.\n\n"
      "Examples:\n"
      "  actzip bench codec --quick\n"
      "  actzip bench codec --device cuda --json h200.json\n"
      "  actzip bench codec --device cpu --codec rotated:2 affine:4:dithered --dtype bf16 --threads 1 8 all\n"
      "  actzip bench codec --device cpu --codec affine:2 --levels all --elements 2^26");
  codec->callback([&action, options] {
    const bool cpu_options = !options->threads.empty() || options->levels != "best";
    if (options->device == "cuda" && cpu_options) {
      throw CLI::ValidationError("--threads and --levels belong to --device cpu, but --device cuda was given");
    }
    if (options->device == "auto" && cpu_options) options->device = "cpu";
    action = [options] { return run_bench(*options); };
  });
  add_bench_load(*bench, action);
}

}  // namespace actzip::cli
