// `actzip train`: executes actzip-train, a program in the same folder that is linked with torch.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "commands.hpp"

namespace actzip::cli {
namespace {

/// Replaces this process with `program`. Throws if that fails.
[[noreturn]] void become(const std::filesystem::path& program, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), program.string());
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  // Otherwise torch's waiting threads spin on cores that the loader or other programs need: up to five times slower.
  setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0);
  execv(program.c_str(), pointers.data());
  const std::string why =
      errno == ENOENT ? "it is not there; build it with -DACTZIP_TORCH=ON, or by 'make build'" : std::strerror(errno);
  throw std::runtime_error(fmt::format("cannot run {}: {}", program.string(), why));
}

std::filesystem::path beside_this_program(const char* name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

}  // namespace

void add_train_command(CLI::App& program, Action& action) {
  CLI::App* command =
      program.add_subcommand("train", "Train a network with compressed activations; 'actzip train --help' says how.");
  command->prefix_command();  // all following arguments are for actzip-train,
  command->set_help_flag();   // including --help
  command->callback([&action, command] {
    const std::vector<std::string> arguments = command->remaining();
    action = [arguments]() -> int { become(beside_this_program("actzip-train"), arguments); };
  });
}

}  // namespace actzip::cli
