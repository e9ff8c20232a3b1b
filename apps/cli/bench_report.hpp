// The results of a benchmark, as a table for people and as JSON for programs.
#pragma once

#include <string>
#include <vector>

#include "bench_measure.hpp"
#include "bench_plan.hpp"

namespace actzip::cli {

struct BenchResult {
  DeviceKind device = DeviceKind::cpu;
  DeviceFacts facts;
  std::string date;
  int repeats = 0;
  std::vector<BenchRow> rows;
  std::vector<LaunchRow> launch_rows;
};

std::string as_text(const BenchResult& result);
std::string as_json(const BenchResult& result);

}  // namespace actzip::cli
