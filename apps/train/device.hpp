// The device that a run computes on, and the memory it uses there.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace actzip::train {

/// Chooses the device by "auto", "cpu" or "cuda". Loads torch's CUDA library unless the name is "cpu": the program
/// itself is linked only with the CPU library, so that one program serves both. Throws WrongUsage for "cuda" if CUDA
/// does not work here.
c10::Device choose_device(const std::string& name);

/// Waits until the device has finished all work.
void synchronize(c10::Device device);

struct MemoryUse {
  std::size_t now = 0;   ///< bytes of tensors on cuda, of the whole process on the CPU
  std::size_t peak = 0;  ///< the maximum so far
};
MemoryUse memory_use(c10::Device device);

}  // namespace actzip::train
