// Tells parameters from activations. Parameters exist anyway, and are never compressed.
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

/// The pointer type for nodes differs between versions of torch.
using NodePtr = decltype(::torch::autograd::Edge::function);

/// The storages of a model's parameters and buffers. They are held weakly, so that no other storage gets an address
/// that is registered here.
class ParameterRegistry {
 public:
  void add(const at::Tensor& tensor);
  [[nodiscard]] bool holds(const c10::StorageImpl* storage) const;

 private:
  mutable std::shared_mutex mutex_;
  std::size_t clean_at_ = 64;  ///< number of entries at which those of freed storages are removed
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;
};

/// Returns why `tensor` is a parameter or derived from parameters alone; empty for an activation. `weight_slot` says
/// that the operator takes its weight in this slot. The reason is a literal.
std::string_view parameter_reason(const at::Tensor& tensor, const ParameterRegistry& registry, bool weight_slot);

/// For a tensor with such a reason: whether it has memory of its own, which perhaps only the save holds. True for the
/// result of a weight norm, false for a view of a parameter. Also false for a tensor without a graph, such as a cast of
/// a frozen weight, because it is unknown there.
bool is_computed(const at::Tensor& tensor, const ParameterRegistry& registry);

/// Returns the storage of the parameter that `tensor` is, or is a view or cast of; null for any other tensor.
const void* parameter_storage(const at::Tensor& tensor, const ParameterRegistry& registry);

/// Whether `tensor` is the result of a softmax, possibly after views, casts, a scaling or a dropout: attention's
/// probabilities.
bool is_softmax_result(const at::Tensor& tensor);

/// Returns the identity of the tensor's storage, which is held weakly: the memory may be freed, but its address is not
/// reused.
Identity storage_identity(const at::Tensor& tensor);

/// Returns the node of the cast whose result `tensor` is, or is a view of; null if it is no cast.
NodePtr cast_node(const at::Tensor& tensor);

}  // namespace actzip::torch
