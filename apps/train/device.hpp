// Where a run computes, and how much memory it takes there.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace actzip::train {

/// "auto", "cpu" or "cuda". Loads torch's CUDA library if there is one and it is asked for: the program itself is
/// linked with the CPU's alone, so that one serves both. Throws WrongUsage if cuda does not work here.
c10::Device choose_device(const std::string& name);

/// Waits until all that was asked of the device is done.
void synchronize(c10::Device device);

struct MemoryUse {
  std::size_t now = 0;   ///< bytes: tensors on cuda; on the CPU the whole process
  std::size_t peak = 0;  ///< the most so far
};
MemoryUse memory_use(c10::Device device);

}  // namespace actzip::train
