// Which rows a benchmark has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actzip/actzip.hpp"
#include "bench_measure.hpp"

namespace actzip::cli {

/// What the user typed; what was left out is chosen by make_plan().
struct BenchRequest {
  DeviceKind device = DeviceKind::cpu;
  bool quick = false;
  std::vector<CodecSpec> specs;
  std::vector<DType> dtypes;
  std::optional<std::int64_t> elems;
  std::optional<std::int64_t> large_elems;
  std::optional<int> repeats;
  std::vector<std::string> threads;  ///< numbers or "all"
  std::string levels = "best";       ///< "best", "all" or the name of one
};

/// CPU threads and instruction set that a part of the rows run with.
struct CpuSetting {
  CpuLevel level = CpuLevel::base;
  int threads = 1;
};

struct BenchPlan {
  std::vector<BenchCase> cases;         ///< measured for each CPU setting, or once on CUDA
  std::vector<BenchCase> launch_cases;  ///< CUDA: small tensors against an empty kernel
  std::vector<CpuSetting> settings;     ///< empty on CUDA
  int repeats = 0;
};

/// Throws Error for what cannot be measured: everything is checked before the first row begins.
BenchPlan make_plan(const BenchRequest& request);

}  // namespace actzip::cli
