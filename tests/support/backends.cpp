#include "support/backends.hpp"

#include <cstdlib>

#include "support/device_memory.hpp"

namespace actzip::testing {
namespace {
bool cuda_usable() { return cuda_device_count() > 0 && cuda_status().problem.empty(); }

std::string cuda_missing() { return "ACTZIP_REQUIRE_CUDA=1, but no CUDA device can be used: " + cuda_status().problem; }
}  // namespace

std::string to_string(const Backend& backend) {
  return backend.device.kind == DeviceKind::cuda ? "cuda" : std::string(to_string(backend.level));
}

std::ostream& operator<<(std::ostream& out, const Backend& backend) { return out << to_string(backend); }

std::string backend_name(const ::testing::TestParamInfo<Backend>& info) { return to_string(info.param); }

std::vector<Backend> cpu_backends() {
  std::vector<Backend> backends;
  for (const CpuLevel level : cpu_levels()) backends.push_back({Device::cpu(), level});
  return backends;
}

bool cuda_required() {
  const char* value = std::getenv("ACTZIP_REQUIRE_CUDA");
  return value != nullptr && std::string(value) == "1";
}

std::vector<Backend> cuda_backends() {
  if (!cuda_usable() && !cuda_required()) return {};
  return {Backend{Device::cuda(), CpuLevel::base}};
}

BackendScope::BackendScope(const Backend& backend) : former_(cpu_level()) {
  if (backend.device.kind == DeviceKind::cpu) set_cpu_level(backend.level);
}

BackendScope::~BackendScope() { set_cpu_level(former_); }

void BackendTest::SetUp() {
  former_ = cpu_level();
  if (device().kind == DeviceKind::cpu) return set_cpu_level(backend().level);
  if (!cuda_usable()) FAIL() << cuda_missing();
}

void BackendTest::TearDown() { set_cpu_level(former_); }

void CudaTest::SetUp() {
  if (cuda_usable()) return;
  if (cuda_required()) FAIL() << cuda_missing();
  GTEST_SKIP() << "no CUDA device: " << cuda_status().problem;
}

}  // namespace actzip::testing
