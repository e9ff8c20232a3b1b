// What operators did to memory on this thread while a scope was open: which memory they wrote to, and which casts they
// made of the same values. A tensor's version counter is not enough, because writes through `.data` do not change it.
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
  /// Records that an operator is about to write into the memory of `tensor`.
  void note_write(const c10::TensorImpl& tensor);

  /// Records that a function runs that may write into any memory.
  void note_unknown_write() { ++unknown_writes_; }

  /// Records that a cast of `source` is about to be made. `sequence_nr` is the number of its node among those of this
  /// thread.
  void note_cast(const at::Tensor& source, std::uint64_t sequence_nr);

  /// Returns how often the memory of `tensor` was written to.
  [[nodiscard]] std::uint32_t writes(const at::Tensor& tensor) const;

  /// Returns an identifier of casts of `source`: the same as long as `source` has the same values. 0 if that is
  /// unknown.
  std::uint64_t casts_of(const at::Tensor& source);

  /// Returns the identifier of the cast that `node` made; 0 for any other node.
  [[nodiscard]] std::uint64_t casts_by(const ::torch::autograd::Node& node) const;

  void clear();

 private:
  /// A tensor at the time of its cast. As long as the storage is held weakly, no other storage gets its address.
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
