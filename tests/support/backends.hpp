// Lists the backends of this machine, with a fixture that runs a test on each of them.
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

/// The CPU backends: one for each instruction set that this machine supports.
std::vector<Backend> cpu_backends();

/// The CUDA device if there is one. With ACTZIP_REQUIRE_CUDA=1, it is always listed, and its tests fail without it.
std::vector<Backend> cuda_backends();

bool cuda_required();

/// Activates a backend, and restores the previous CPU level at the end of its lifetime.
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

/// Fixture for tests of CUDA alone. They skip without a device, or fail if ACTZIP_REQUIRE_CUDA=1.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override;
};

}  // namespace actzip::testing
