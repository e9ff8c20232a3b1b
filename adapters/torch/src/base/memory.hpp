// Gives the core torch's memory, streams and threads. Uses c10 alone, so one source serves CPU and CUDA builds of
// torch.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>
#include <c10/core/TensorImpl.h>

#include "actzip/memory.hpp"
#include "actzip/stream.hpp"

namespace actzip::torch {

/// Allocates from torch's own allocators.
Memory& torch_memory();

/// The owner of an allocation of torch_memory(). All tensors on it share the version counter, which counts in-place
/// changes.
struct OwnedStorage {
  c10::Storage storage;
  c10::VariableVersion version{0};
};

inline const OwnedStorage& owner_of(const Allocation& allocation) {
  return *static_cast<const OwnedStorage*>(allocation.owner.get());
}

/// Returns torch's current stream of `device`; for the CPU, a stream on torch's thread pool.
Stream current_stream(c10::Device device);

/// Whether work enqueued on the current stream of `device` now goes into a CUDA graph.
bool is_captured(c10::Device device);

/// Delays the reuse of the memory of `storage`, even if it is freed earlier, until the work that is now enqueued on the
/// current stream of its device has run. Does nothing on the CPU.
void record_on_current_stream(const c10::Storage& storage);

}  // namespace actzip::torch
