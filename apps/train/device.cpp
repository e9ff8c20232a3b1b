#include "device.hpp"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "options.hpp"

namespace actzip::train {

namespace {

/// Returns why CUDA does not work here, or an empty string if it does.
std::string cuda_problem() {
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return "the torch that this program was built with has no CUDA library";
  }
  if (!at::globalContext().hasCUDA()) return "torch finds no CUDA device here";
  return {};
}

}  // namespace

c10::Device choose_device(const std::string& name) {
  if (name == "cpu") return c10::kCPU;
  const std::string problem = cuda_problem();
  if (problem.empty()) return {c10::kCUDA, 0};
  if (name == "cuda") throw WrongUsage("--device cuda: " + problem + " (allowed here: cpu)");
  return c10::kCPU;
}

void synchronize(c10::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

MemoryUse memory_use(c10::Device device) {
  if (device.is_cpu()) {
    constexpr std::size_t kKiB = 1024;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    std::size_t pages = 0;
    std::size_t resident = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident;
    return {resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)),
            static_cast<std::size_t>(usage.ru_maxrss) * kKiB};
  }
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = at::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  const auto& bytes = stats.allocated_bytes.at(kAll);
  return {static_cast<std::size_t>(bytes.current), static_cast<std::size_t>(bytes.peak)};
}

}  // namespace actzip::train
