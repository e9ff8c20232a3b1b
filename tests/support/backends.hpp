// The backends of this machine, and the fixture that runs one test on each of them.
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, Suite, ::testing::ValuesIn(cpu_backends()), backend_name);
//   INSTANTIATE_TEST_SUITE_P(Cuda, Suite, ::testing::ValuesIn(cuda_backends()), backend_name);
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "actzip/backend.hpp"
#include "actzip/types.hpp"

namespace actzip::testing {

struct Backend {
  Device device;
  CpuLevel level = CpuLevel::base;  ///< on the CPU only
};

std::string to_string(const Backend& backend);
std::ostream& operator<<(std::ostream& out, const Backend& backend);
std::string backend_name(const ::testing::TestParamInfo<Backend>& info);

/// Every instruction set that this machine can run.
std::vector<Backend> cpu_backends();

/// The CUDA device if there is one. With ACTZIP_REQUIRE_CUDA=1 it is listed anyway, and its tests fail without it.
std::vector<Backend> cuda_backends();

bool cuda_required();

/// Makes a backend the one in use, and the former CPU level again afterwards.
class BackendScope {
 public:
  explicit BackendScope(const Backend& backend);
  ~BackendScope();
  BackendScope(const BackendScope&) = delete;
  BackendScope& operator=(const BackendScope&) = delete;

 private:
  CpuLevel former_;
};

class BackendTest : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override;
  void TearDown() override;
  static Backend backend() { return GetParam(); }
  static Device device() { return GetParam().device; }

 private:
  CpuLevel former_ = CpuLevel::base;
};

/// For tests of CUDA alone: skipped without a device, or failed where one is required.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override;
};

}  // namespace actzip::testing
