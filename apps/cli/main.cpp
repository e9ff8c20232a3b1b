// The program `actzip`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "actzip/version.hpp"
#include "build_info.hpp"
#include "commands.hpp"

namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

int report(const std::exception& error, int status) noexcept {
  std::fprintf(stderr, "actzip: %s\n", error.what());  // unlike fmt::print, it cannot throw
  return status;
}

std::vector<std::string> commands_of(const CLI::App& program) {
  std::vector<std::string> names;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

/// Reports a command line that stops before a command that does something, such as `actzip bench`.
[[noreturn]] void fail_without_command(const CLI::App& program) {
  const CLI::App* last = &program;
  std::string path = "actzip";
  while (!last->get_subcommands().empty()) {
    last = last->get_subcommands().front();
    path += " " + last->get_name();
  }
  throw CLI::ValidationError(fmt::format("'{}' needs a subcommand: {}", path, fmt::join(commands_of(*last), ", ")));
}

/// Refuses a command that does not exist. Python's package has a program of the same name, with further commands.
void check_command(const CLI::App& program, std::string_view name) {
  const std::vector<std::string> known = commands_of(program);
  if (name.empty() || name.starts_with('-') || std::ranges::find(known, name) != known.end()) return;
  const bool is_of_python = name == "report" || name == "demo";
  const std::string hint = is_of_python ? fmt::format("; Python's package has one: python -m actzip {}", name) : "";
  throw CLI::ValidationError(
      fmt::format("there is no command '{}' (allowed: {}{})", name, fmt::join(known, ", "), hint));
}

int run(int argc, char** argv) {
  CLI::App program("Compressed activations for training: codecs, benchmarks, plans, data, and a look at this machine.",
                   "actzip");
  program.require_subcommand(0, 1);  // checked below: CLI11 would not name an unknown subcommand
  program.set_version_flag("--version",
                           fmt::format("actzip {} (commit {})", ACTZIP_VERSION_STRING, actzip::cli::kCommit));
  program.footer(
      "Examples:\n"
      "  actzip train --model resnet18 --data shapes   a network with compressed activations\n"
      "  actzip doctor                     what works here, and what to do about the rest\n"
      "  actzip codecs                     what there is to choose from\n"
      "  actzip bench codec --quick        bytes, error and speed in a few seconds\n"
      "  actzip plan report.json --bits 2  bits for each site of a training step\n"
      "  actzip dataset info shapes        what a data set holds\n"
      "'actzip COMMAND --help' explains a command.");

  actzip::cli::Action action;
  actzip::cli::add_train_command(program, action);
  actzip::cli::add_codecs_command(program, action);
  actzip::cli::add_bench_command(program, action);
  actzip::cli::add_plan_command(program, action);
  actzip::cli::add_dataset_command(program, action);
  actzip::cli::add_doctor_command(program, action);
  try {
    check_command(program, argc > 1 ? argv[1] : "");
    program.parse(argc, argv);
    if (!action) fail_without_command(program);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.exit(error);  // --help, --version
    report(error, kWrongUsage);
    fmt::print(stderr, "Run 'actzip --help' or 'actzip COMMAND --help' for what is allowed.\n");
    return kWrongUsage;
  }
  return action();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    return report(error, kFailed);
  }
}
