#include "operators/parameters.hpp"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "base/convert.hpp"
#include "operators/operator_table.hpp"

namespace actzip::torch {

namespace {

using ::torch::autograd::AccumulateGrad;
using ::torch::autograd::Node;

PassesOn passed_on_by(const Node& node) {
  const OperatorRow* const row = find_node(node);
  return row != nullptr ? row->passes_on : PassesOn::nothing;
}

bool is_view(PassesOn passes_on) { return passes_on == PassesOn::view || passes_on == PassesOn::transposition; }

/// Returns the leaf that `node` accumulates into; null for any other node.
const at::Tensor* leaf_of(const Node& node) {
  const auto* const leaf = dynamic_cast<const AccumulateGrad*>(&node);
  return leaf != nullptr ? &leaf->variable : nullptr;
}

/// Whether the result still depends on parameters alone if a parameter passes through.
bool keeps_parameters(PassesOn passes_on) {
  return is_view(passes_on) || passes_on == PassesOn::cast || passes_on == PassesOn::scaled ||
         passes_on == PassesOn::arithmetic;
}

/// A walk towards the leaves, short enough to cost little. Every path must end at a leaf. It may also end at a
/// constant, if the leaves are registered parameters and the result is no larger than one of them: a weight times a
/// mask is a weight, but a batch times a weight is not.
class LeafWalk {
 public:
  explicit LeafWalk(const ParameterRegistry& registry) : registry_(registry) {}

  [[nodiscard]] bool derived_from_leaves(const at::Tensor& tensor, const Node& root) {
    return leads_to_leaves(root, 0) && (!constants_ || tensor.numel() <= largest_parameter_);
  }

 private:
  [[nodiscard]] bool leads_to_leaves(const Node& node, int depth) {
    constexpr int kMaxNodes = 24;
    constexpr int kMaxDepth = 6;
    if (++visited_ > kMaxNodes || depth > kMaxDepth) return false;
    if (const at::Tensor* const leaf = leaf_of(node)) {
      if (leaf->has_storage() && registry_.holds(leaf->storage().unsafeGetStorageImpl())) note_parameter(*leaf);
      return true;
    }
    if (!keeps_parameters(passed_on_by(node))) return false;
    bool any = false;
    for (const auto& edge : node.next_edges()) {
      if (edge.is_valid() && !leads_to_leaves(*edge.function, depth + 1)) return false;
      any = any || edge.is_valid();
      constants_ = constants_ || !edge.is_valid();
    }
    return any;
  }

  void note_parameter(const at::Tensor& leaf) {
    const bool is_sized = has_plain_sizes(*leaf.unsafeGetTensorImpl());
    if (is_sized) largest_parameter_ = std::max(largest_parameter_, leaf.numel());
  }

  const ParameterRegistry& registry_;
  int visited_ = 0;
  bool constants_ = false;
  std::int64_t largest_parameter_ = 0;
};

}  // namespace

void ParameterRegistry::add(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  if (holds(storage)) return;
  const std::unique_lock lock(mutex_);
  storages_.try_emplace(storage, tensor.storage().getWeakStorageImpl());
  if (storages_.size() < clean_at_) return;
  std::erase_if(storages_, [](const auto& entry) { return entry.second.expired(); });
  clean_at_ = 2 * storages_.size() + 64;
}

bool ParameterRegistry::holds(const c10::StorageImpl* storage) const {
  const std::shared_lock lock(mutex_);
  return storages_.contains(storage);
}

std::string_view parameter_reason(const at::Tensor& tensor, const ParameterRegistry& registry, bool weight_slot) {
  if (registry.holds(tensor.storage().unsafeGetStorageImpl())) return "a parameter or buffer";
  if (const auto node = tensor.grad_fn()) {
    return LeafWalk(registry).derived_from_leaves(tensor, *node) ? "derived from parameters" : "";
  }
  // Without gradients, as in the forward of an autograd function, a view has no node of its own. It is treated like its
  // base.
  if (const at::Tensor base(tensor.is_view() ? tensor._base() : at::TensorBase()); base.defined() && base.grad_fn()) {
    return parameter_reason(base, registry, weight_slot);
  }
  if (tensor.requires_grad()) return "a leaf that requires grad";
  return weight_slot ? "an operator's weight" : "";
}

bool is_computed(const at::Tensor& tensor, const ParameterRegistry& registry) {
  if (registry.holds(tensor.storage().unsafeGetStorageImpl())) return false;
  const at::Tensor base(tensor.is_view() ? tensor._base() : at::TensorBase());
  return (base.defined() ? base : tensor).grad_fn() != nullptr;
}

const void* parameter_storage(const at::Tensor& tensor, const ParameterRegistry& registry) {
  if (!tensor.has_storage()) return nullptr;
  if (registry.holds(tensor.storage().unsafeGetStorageImpl())) return tensor.storage().unsafeGetStorageImpl();
  constexpr int kMaxNodes = 4;
  NodePtr node = tensor.grad_fn();
  for (int i = 0; i < kMaxNodes && node; ++i) {
    if (const at::Tensor* const leaf = leaf_of(*node)) {
      const bool is_known = leaf->has_storage() && registry.holds(leaf->storage().unsafeGetStorageImpl());
      return is_known ? leaf->storage().unsafeGetStorageImpl() : nullptr;
    }
    const PassesOn passes_on = passed_on_by(*node);
    const bool is_same = passes_on == PassesOn::cast || is_view(passes_on);
    if (!is_same || node->num_outputs() == 0) return nullptr;
    node = node->next_edge(0).function;
  }
  return nullptr;
}

bool is_softmax_result(const at::Tensor& tensor) {
  constexpr int kMaxNodes = 8;
  NodePtr node = tensor.grad_fn();
  for (int i = 0; i < kMaxNodes && node; ++i) {
    const PassesOn passes_on = passed_on_by(*node);
    if (passes_on == PassesOn::probabilities) return true;
    const bool is_alike = passes_on == PassesOn::cast || is_view(passes_on) || passes_on == PassesOn::scaled ||
                          passes_on == PassesOn::some;
    if (!is_alike || node->num_outputs() == 0) return false;
    node = node->next_edge(0).function;
  }
  return false;
}

Identity storage_identity(const at::Tensor& tensor) {
  namespace counts = c10::raw::weak_intrusive_ptr;
  static constexpr Guard::Counting kWeakStorage{
      .retain = [](void* storage) { counts::incref(static_cast<c10::StorageImpl*>(storage)); },
      .release = [](void* storage) { counts::decref(static_cast<c10::StorageImpl*>(storage)); }};
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  counts::incref(storage);
  return {reinterpret_cast<std::uintptr_t>(storage), Guard(storage, kWeakStorage)};
}

NodePtr cast_node(const at::Tensor& tensor) {
  NodePtr node = tensor.grad_fn();
  constexpr int kMaxViews = 3;
  for (int i = 0; i < kMaxViews && node && is_view(passed_on_by(*node)); ++i) {
    if (node->num_outputs() != 1) return nullptr;
    node = node->next_edge(0).function;
  }
  return node && passed_on_by(*node) == PassesOn::cast ? node : nullptr;
}

}  // namespace actzip::torch
