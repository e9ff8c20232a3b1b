// How much memory the host has left: the machine, and the control group that the process may be in.
#include <algorithm>
#include <cstddef>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "actzip/memory.hpp"

namespace actzip {

namespace {

/// Returns the number at the start of a file; nothing if there is none, or the word "max".
std::optional<std::size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::size_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

/// Returns the number that follows `name` in a file whose lines are a name and a number.
std::optional<std::size_t> number_of(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  std::size_t value = 0;
  while (file >> word) {
    if (word == name) return file >> value ? std::optional(value) : std::nullopt;
  }
  return std::nullopt;
}

/// Returns what the limit of a container leaves. Clean pages of files count as used there, but can be reclaimed.
std::optional<std::size_t> left_in_container() {
  const std::string folder = "/sys/fs/cgroup/";
  const auto limit = number_in(folder + "memory.max");
  const auto used = number_in(folder + "memory.current");
  if (!limit || !used) return std::nullopt;
  const std::size_t reclaimable = number_of(folder + "memory.stat", "inactive_file").value_or(0);
  const std::size_t needed = *used - std::min(*used, reclaimable);
  return *limit - std::min(*limit, needed);
}

}  // namespace

std::size_t Memory::available_bytes(const Stream& /*stream*/) const {
  constexpr std::size_t kKiB = 1024;
  constexpr std::size_t kNotKnown = std::numeric_limits<std::size_t>::max() / kKiB;
  const std::size_t machine = number_of("/proc/meminfo", "MemAvailable:").value_or(kNotKnown) * kKiB;
  return std::min(machine, left_in_container().value_or(machine));
}

}  // namespace actzip
