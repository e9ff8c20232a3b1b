// The subcommands of the program. Each adds itself to the command line and sets `action` if the user chooses it.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace actzip::cli {

/// The chosen command. main() runs it after parsing the command line; it returns the exit status.
using Action = std::function<int()>;

void add_train_command(CLI::App& program, Action& action);
void add_codecs_command(CLI::App& program, Action& action);
void add_doctor_command(CLI::App& program, Action& action);
void add_plan_command(CLI::App& program, Action& action);
void add_bench_command(CLI::App& program, Action& action);
void add_bench_load(CLI::App& bench, Action& action);
void add_dataset_command(CLI::App& program, Action& action);

}  // namespace actzip::cli
