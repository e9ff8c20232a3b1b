// The subcommands of the program. Each adds itself to the command line and gives what to run if it is chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace actzip::cli {

/// Set to what was chosen; run after the command line has been read, and returns the exit status.
using Action = std::function<int()>;

void add_train_command(CLI::App& program, Action& action);
void add_codecs_command(CLI::App& program, Action& action);
void add_doctor_command(CLI::App& program, Action& action);
void add_plan_command(CLI::App& program, Action& action);
void add_bench_command(CLI::App& program, Action& action);
void add_bench_load(CLI::App& bench, Action& action);
void add_dataset_command(CLI::App& program, Action& action);

}  // namespace actzip::cli
