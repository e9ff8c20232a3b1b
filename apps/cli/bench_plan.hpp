// Chooses the rows of a benchmark.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actzip/actzip.hpp"
#include "bench_measure.hpp"

namespace actzip::cli {

/// The user's request; make_plan() fills in what was left out.
struct BenchRequest {
  DeviceKind device = DeviceKind::cpu;
  bool quick = false;
  std::vector<CodecSpec> specs;
  std::vector<DType> dtypes;
  std::optional<std::int64_t> elems;
  std::optional<std::int64_t> large_elems;
  std::optional<int> repeats;
  std::vector<std::string> threads;  ///< numbers or "all"
  std::string levels = "best";       ///< "best", "all" or the name of one level
};

/// The thread count and instruction set for a group of rows.
struct CpuSetting {
  CpuLevel level = CpuLevel::base;
  int threads = 1;
};

struct BenchPlan {
  std::vector<BenchCase> cases;         ///< measured for each CPU setting, or once on CUDA
  std::vector<BenchCase> launch_cases;  ///< CUDA only: small tensors, compared with an empty kernel
  std::vector<CpuSetting> settings;     ///< empty on CUDA
  int repeats = 0;
};

/// Checks everything before the first row begins. Throws Error for requests that cannot be measured.
BenchPlan make_plan(const BenchRequest& request);

}  // namespace actzip::cli
