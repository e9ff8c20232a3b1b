// What this thread's operators did to memory while a scope listens: which was written to, and which casts were made of
// the same values. A tensor's own version counter does not tell: what goes through `.data` passes it by.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace actzip::torch {

class MemoryLog {
 public:
  /// An operator is about to write into the memory of `tensor`.
  void note_write(const c10::TensorImpl& tensor);

  /// Somebody runs of whom nobody knows what is written to.
  void note_unknown_write() { ++unknown_writes_; }

  /// A cast of `source` is about to be made. Its node will have that number among this thread's.
  void note_cast(const at::Tensor& source, std::uint64_t sequence_nr);

  /// How often the memory of `tensor` was written to.
  [[nodiscard]] std::uint32_t writes(const at::Tensor& tensor) const;

  /// The number of casts of `source` as it is now: the same as long as it has the same values. 0 if that is not known.
  std::uint64_t casts_of(const at::Tensor& source);

  /// The number of the casts of which `node` made one; 0 for any other node.
  [[nodiscard]] std::uint64_t casts_by(const ::torch::autograd::Node& node) const;

  /// Forgets everything.
  void clear();

 private:
  /// A tensor as it was when it was cast. While the storage is held weakly, no other one has its address.
  struct Source {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    const void* data;
    c10::ScalarType type;
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    std::uint32_t version;
    std::uint32_t writes;
    std::uint64_t unknown_writes;
    std::uint64_t casts;
  };
  [[nodiscard]] bool is_same(const Source& source, const at::Tensor& tensor) const;

  std::unordered_map<const c10::StorageImpl*, std::uint32_t> writes_;
  std::uint64_t unknown_writes_ = 0;
  std::unordered_multimap<const c10::StorageImpl*, Source> sources_;
  std::unordered_map<std::uint64_t, std::uint64_t> casts_by_node_;  ///< by the node's number
};

}  // namespace actzip::torch
