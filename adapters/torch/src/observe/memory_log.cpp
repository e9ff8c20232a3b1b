#include "observe/memory_log.hpp"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <utility>

#include "base/convert.hpp"

namespace actzip::torch {

namespace {

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> count{0};
  return ++count;
}

std::uint32_t version_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

/// Whether the tensor has ordinary memory and a version counter.
bool is_plain(const at::Tensor& tensor) {
  return has_plain_sizes(*tensor.unsafeGetTensorImpl()) && tensor.layout() == c10::kStrided && tensor.has_storage() &&
         !tensor.is_inference();
}

}  // namespace

void MemoryLog::note_write(const c10::TensorImpl& tensor) {
  if (tensor.has_storage()) ++writes_[tensor.unsafe_storage().unsafeGetStorageImpl()];
}

std::uint32_t MemoryLog::writes(const at::Tensor& tensor) const {
  const auto found = writes_.find(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  return found == writes_.end() ? 0 : found->second;
}

bool MemoryLog::is_same(const Source& source, const at::Tensor& tensor) const {
  return source.data == tensor.const_data_ptr() && source.type == tensor.scalar_type() &&
         source.version == version_of(tensor) && source.writes == writes(tensor) &&
         source.unknown_writes == unknown_writes_ && tensor.sizes() == source.sizes &&
         tensor.strides() == source.strides;
}

std::uint64_t MemoryLog::casts_of(const at::Tensor& source) {
  if (!is_plain(source)) return 0;
  const auto* storage = source.storage().unsafeGetStorageImpl();
  const auto [begin, end] = sources_.equal_range(storage);
  for (auto known = begin; known != end; ++known) {
    if (is_same(known->second, source)) return known->second.casts;
  }
  const std::uint64_t casts = next_number();
  sources_.emplace(storage, Source{.storage = source.storage().getWeakStorageImpl(),
                                   .data = source.const_data_ptr(),
                                   .type = source.scalar_type(),
                                   .sizes = source.sizes().vec(),
                                   .strides = source.strides().vec(),
                                   .version = version_of(source),
                                   .writes = writes(source),
                                   .unknown_writes = unknown_writes_,
                                   .casts = casts});
  return casts;
}

void MemoryLog::note_cast(const at::Tensor& source, std::uint64_t sequence_nr) {
  if (const std::uint64_t casts = casts_of(source)) casts_by_node_[sequence_nr] = casts;
}

std::uint64_t MemoryLog::casts_by(const ::torch::autograd::Node& node) const {
  // Sequence numbers are per thread.
  if (node.thread_id() != at::RecordFunction::currentThreadId()) return 0;
  const auto found = casts_by_node_.find(node.sequence_nr());
  return found == casts_by_node_.end() ? 0 : found->second;
}

void MemoryLog::clear() {
  writes_.clear();
  sources_.clear();
  casts_by_node_.clear();
}

}  // namespace actzip::torch
