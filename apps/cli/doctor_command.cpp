// `actzip doctor`: reports what works on this machine, and what to do about the rest.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "actzip/actzip.hpp"
#include "bench_device.hpp"
#include "bench_measure.hpp"
#include "build_info.hpp"
#include "commands.hpp"
#include "machine.hpp"
#include "openmp_executor.hpp"

namespace actzip::cli {
namespace {

using Json = nlohmann::ordered_json;

enum class State : std::uint8_t { ok, missing, broken };

std::string_view to_string(State state) {
  switch (state) {
    case State::ok: return "ok";
    case State::missing: return "missing";
    case State::broken: return "broken";
  }
  return "";
}

/// One line of the report.
struct Finding {
  std::string topic;
  State state = State::ok;
  std::string text;
  std::string advice = {};  ///< what to do; empty if nothing needs to be done
};

/// 13000 becomes "13.0".
std::string cuda_version(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

/// Verifies a round trip of the last variant of every codec against what the registry promises.
Finding check_codecs(const std::string& topic, BenchDevice& device) {
  constexpr std::int64_t kElems = 100'003;  // leaves the last group incomplete
  std::string failed;
  for (const CodecInfo& info : codecs()) {
    try {
      (void)verify(device, {info.variants.back(), info.encodes.front(), kElems});
    } catch (const std::exception& error) {
      failed += fmt::format("{}{}: {}", failed.empty() ? "" : "; ", info.name, error.what());
    }
  }
  if (failed.empty()) return {topic, State::ok, fmt::format("all {} codecs restore what they should", codecs().size())};
  return {topic, State::broken, failed,
          "this is a fault of actzip or of the machine: please report it with this output"};
}

Finding check_cpu_codecs() {
  const CpuLevel level_before = cpu_level();
  Finding worst{"CPU codecs", State::ok, "", ""};
  for (const CpuLevel level : cpu_levels()) {
    set_cpu_level(level);
    const auto device = make_cpu_device(available_threads());
    Finding finding = check_codecs("CPU codecs", *device);
    if (worst.state == State::ok) worst = std::move(finding);
  }
  set_cpu_level(level_before);
  return worst;
}

std::vector<Finding> check_cuda() {
  const CudaStatus status = cuda_status();
  std::vector<Finding> findings;
  if (status.built) {
    findings.push_back({"CUDA build", State::ok,
                        fmt::format("kernels by {}, runtime {}", kCudaCompiler, cuda_version(status.runtime_version))});
  } else {
    findings.push_back({"CUDA build", State::missing, "this program has no CUDA kernels",
                        "for a GPU: install the CUDA toolkit (nvcc) and build again; the CPU needs nothing"});
    return findings;
  }
  if (status.driver_version > 0) {
    findings.push_back({"CUDA driver", State::ok, fmt::format("for CUDA {}", cuda_version(status.driver_version))});
  }
  if (status.device_count > 0) {
    findings.push_back(
        {"CUDA device", State::ok,
         fmt::format("{} (sm_{}), {} in all", status.device_name, status.capability, status.device_count)});
  }
  if (!status.problem.empty()) {
    findings.push_back({"CUDA codecs", State::missing, "no kernel can run here", status.problem});
    return findings;
  }
  try {
    const auto device = make_cuda_device();
    findings.push_back(check_codecs("CUDA codecs", *device));
  } catch (const std::exception& error) {
    findings.push_back({"CUDA codecs", State::broken, error.what(), "see whether nvidia-smi finds the device healthy"});
  }
  return findings;
}

std::vector<Finding> examine() {
  std::vector<std::string_view> levels;
  for (const CpuLevel level : cpu_levels()) levels.push_back(to_string(level));
  std::vector<Finding> findings{
      {"actzip", State::ok,
       fmt::format("{}, commit {}, byte format {}", ACTZIP_VERSION_STRING, kCommit, kFormatVersion)},
      {"compiler", State::ok, fmt::format("{}, {}", kCompiler, kBuildType)},
      {"CPU", State::ok, fmt::format("{}, {} threads", cpu_model(), available_threads())},
      {"CPU levels", State::ok, fmt::format("{}; in use: {}", fmt::join(levels, ", "), to_string(cpu_level()))},
      {"memory", State::ok, fmt::format("{:.1f} GiB", static_cast<double>(memory_bytes()) / (1U << 30))},
      check_cpu_codecs(),
  };
  for (Finding& finding : check_cuda()) findings.push_back(std::move(finding));
  return findings;
}

void print_text(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    fmt::print("{:<8} {:<12} {}\n", to_string(finding.state), finding.topic, finding.text);
    if (!finding.advice.empty()) fmt::print("{:<21} -> {}\n", "", finding.advice);
  }
}

void print_json(const std::vector<Finding>& findings) {
  const CudaStatus status = cuda_status();
  Json json{{"version", ACTZIP_VERSION_STRING},
            {"commit", kCommit},
            {"compiler", kCompiler},
            {"cpu", {{"model", cpu_model()}, {"threads", available_threads()}, {"level", to_string(cpu_level())}}},
            {"memory_bytes", memory_bytes()},
            {"cuda",
             {{"built", status.built},
              {"device_count", status.device_count},
              {"runtime_version", status.runtime_version},
              {"driver_version", status.driver_version},
              {"device_name", status.device_name},
              {"capability", status.capability},
              {"problem", status.problem}}},
            {"findings", Json::array()}};
  for (const CpuLevel level : cpu_levels()) json["cpu"]["levels"].push_back(to_string(level));
  for (const Finding& finding : findings) {
    json["findings"].push_back({{"topic", finding.topic},
                                {"state", to_string(finding.state)},
                                {"text", finding.text},
                                {"advice", finding.advice}});
  }
  fmt::print("{}\n", json.dump(2));
}

int run_doctor(bool json) {
  const std::vector<Finding> findings = examine();
  json ? print_json(findings) : print_text(findings);
  bool broken = false;  // missing parts are no failure: the CPU needs none of them
  for (const Finding& finding : findings) broken = broken || finding.state == State::broken;
  return broken ? 1 : 0;
}

}  // namespace

void add_doctor_command(CLI::App& program, Action& action) {
  CLI::App* command =
      program.add_subcommand("doctor", "Say what works on this machine, and what to do about the rest.");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print JSON");
  command->footer(
      "Status 0 if everything that is there works, 1 if something is broken; a missing GPU is no failure.\n\n"
      "Examples:\n"
      "  actzip doctor\n"
      "  actzip doctor --json | jq .cuda.problem");
  command->callback([&action, json] { action = [json] { return run_doctor(*json); }; });
}

}  // namespace actzip::cli
