// The core's memory, streams and threads, lent by torch. Reached through c10 alone, so that one source serves CPU and
// CUDA builds of torch.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>
#include <c10/core/TensorImpl.h>

#include "actzip/memory.hpp"
#include "actzip/stream.hpp"

namespace actzip::torch {

/// torch's own allocators.
Memory& torch_memory();

/// What owns an allocation of torch_memory(). Tensors on it share the version counter, which counts in-place changes.
struct OwnedStorage {
  c10::Storage storage;
  c10::VariableVersion version{0};
};

inline const OwnedStorage& owner_of(const Allocation& allocation) {
  return *static_cast<const OwnedStorage*>(allocation.owner.get());
}

/// The current stream of `device`; on the CPU torch's thread pool.
Stream current_stream(c10::Device device);

/// Whether what is enqueued there now goes into a CUDA graph.
bool is_captured(c10::Device device);

/// Keeps the memory of `storage` until what was enqueued on the current stream of its device has run, even if it is
/// freed before. Does nothing on the CPU.
void record_on_current_stream(const c10::Storage& storage);

}  // namespace actzip::torch
