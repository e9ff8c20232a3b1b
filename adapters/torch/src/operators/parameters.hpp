// Telling parameters from activations: parameters exist anyway, and are never compressed.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>

#include "actzip/session.hpp"

namespace actzip::torch {

/// Which pointer holds a node differs between versions of torch.
using NodePtr = decltype(::torch::autograd::Edge::function);

/// The storages of a model's parameters and buffers, held weakly: an address here is never another storage's.
class ParameterRegistry {
 public:
  void add(const at::Tensor& tensor);
  [[nodiscard]] bool holds(const c10::StorageImpl* storage) const;

 private:
  mutable std::shared_mutex mutex_;
  std::size_t clean_at_ = 64;  ///< entries at which those of freed storages are taken out
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;
};

/// Why `tensor` is a parameter, or derived from parameters alone; empty for an activation. `weight_slot` says that the
/// operator takes its weight there. The reason is a literal.
std::string_view parameter_reason(const at::Tensor& tensor, const ParameterRegistry& registry, bool weight_slot);

/// Of a tensor with such a reason: whether it has memory of its own, which nobody need hold but whoever saves it. A
/// weight norm's result has, a view of a parameter has not. Of what has no graph, as casts of frozen weights, that is
/// not known: false.
bool is_computed(const at::Tensor& tensor, const ParameterRegistry& registry);

/// The storage of the parameter that `tensor` is, or is a view or cast of; null for everything else.
const void* parameter_storage(const at::Tensor& tensor, const ParameterRegistry& registry);

/// Whether `tensor` is a softmax's result, perhaps viewed, cast, scaled or after a dropout: attention's probabilities.
bool is_softmax_result(const at::Tensor& tensor);

/// Its storage, held weakly: the memory may go, the address is not used again.
Identity storage_identity(const at::Tensor& tensor);

/// The node that made the cast of which `tensor` is the whole or a view; null if it is none.
NodePtr cast_node(const at::Tensor& tensor);

}  // namespace actzip::torch
