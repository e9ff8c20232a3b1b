#include "cpu/level.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <vector>

#include "actzip/backend.hpp"
#include "actzip/error.hpp"

namespace actzip {
namespace {

constexpr const char* kVariable = "ACTZIP_CPU_LEVEL";

std::vector<CpuLevel> find_levels() {
  std::vector<CpuLevel> levels = {CpuLevel::base};
#if defined(ACTZIP_CPU_LEVELS_X86)
  // F16C is not tested: every processor with AVX2 has it, and clang 14 does not know its name here.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2");
  if (avx2) levels.push_back(CpuLevel::avx2);
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx2 && avx512) levels.push_back(CpuLevel::avx512);
#endif
  return levels;
}

bool available(CpuLevel level) { return std::ranges::count(cpu_levels(), level) != 0; }

std::string names_of_levels() {
  std::vector<std::string_view> names;
  for (const CpuLevel level : cpu_levels()) names.push_back(to_string(level));
  return fmt::format("{}", fmt::join(names, ", "));
}

CpuLevel initial_level() {
  const char* wanted = std::getenv(kVariable);
  if (wanted == nullptr || *wanted == '\0') return cpu_levels().back();
  for (const CpuLevel level : cpu_levels()) {
    if (to_string(level) == wanted) return level;
  }
  throw Error(ErrorCode::backend_unavailable,
              fmt::format("{} is '{}'; this machine can run: {}", kVariable, wanted, names_of_levels()));
}

/// A wrong environment variable throws at every call, not only at the first.
std::atomic<CpuLevel>& current_level() {
  static std::atomic<CpuLevel> level{initial_level()};
  return level;
}

}  // namespace

std::string_view to_string(CpuLevel level) noexcept {
  switch (level) {
    case CpuLevel::base: return "base";
    case CpuLevel::avx2: return "avx2";
    case CpuLevel::avx512: return "avx512";
  }
  return "unknown";
}

std::span<const CpuLevel> cpu_levels() {
  static const std::vector<CpuLevel> levels = find_levels();
  return levels;
}

CpuLevel cpu_level() { return current_level().load(std::memory_order_relaxed); }

void set_cpu_level(CpuLevel level) {
  if (!available(level)) {
    throw Error(ErrorCode::backend_unavailable, fmt::format("the CPU level {} was asked for; this machine can run: {}",
                                                            to_string(level), names_of_levels()));
  }
  current_level().store(level, std::memory_order_relaxed);
}

namespace cpu {

const Loops& current_loops() {
#if defined(ACTZIP_CPU_LEVELS_X86)
  switch (cpu_level()) {
    case CpuLevel::base: return base::kLoops;
    case CpuLevel::avx2: return avx2::kLoops;
    case CpuLevel::avx512: return avx512::kLoops;
  }
#endif
  return base::kLoops;
}

}  // namespace cpu
}  // namespace actzip
