#include "parameters.hpp"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <typeinfo>

namespace actzip::torch {

namespace {

using ::torch::autograd::AccumulateGrad;
using ::torch::autograd::Node;

enum class NodeKind : std::uint8_t { other, leaf, cast, view, scaling, arithmetic, softmax, dropout };

/// Nodes that a parameter may pass through on its way to the operator that uses it.
constexpr std::array kViews = {
    "TBackward0",          "TransposeBackward0",      "PermuteBackward0", "ViewBackward0",
    "UnsafeViewBackward0", "ReshapeAliasBackward0",   "SelectBackward0",  "SliceBackward0",
    "SplitBackward0",      "SplitWithSizesBackward0", "SqueezeBackward0", "SqueezeBackward1",
    "UnsqueezeBackward0",  "ExpandBackward0",         "AliasBackward0",   "AsStridedBackward0"};
constexpr std::array kScaling = {"CloneBackward0", "MulBackward0", "DivBackward0"};
constexpr std::array kArithmetic = {"AddBackward0", "SubBackward0", "NormBackward0", "NormBackward1",
                                    "MvBackward0",  "DotBackward0", "VdotBackward0", "WeightNormInterfaceBackward0"};
constexpr std::array kSoftmaxNodes = {"SoftmaxBackward0", "SafeSoftmaxBackward0", "MaskedSoftmaxBackward0"};

NodeKind name_kind(const Node& node) {
  if (dynamic_cast<const AccumulateGrad*>(&node) != nullptr) return NodeKind::leaf;
  const std::string name = node.name();
  if (name == "ToCopyBackward0") return NodeKind::cast;
  if (std::ranges::find(kViews, name) != kViews.end()) return NodeKind::view;
  if (std::ranges::find(kScaling, name) != kScaling.end()) return NodeKind::scaling;
  if (std::ranges::find(kArithmetic, name) != kArithmetic.end()) return NodeKind::arithmetic;
  if (std::ranges::find(kSoftmaxNodes, name) != kSoftmaxNodes.end()) return NodeKind::softmax;
  if (name == "NativeDropoutBackward0" || name == "ActzipDropout") return NodeKind::dropout;
  return NodeKind::other;
}

/// By type, because a node makes its name from its type each time it is asked. Nodes of Python share one type and
/// are `other`, whatever their class is called.
NodeKind kind_of(const Node& node) {
  thread_local std::unordered_map<const std::type_info*, NodeKind> known;
  const auto [place, is_new] = known.try_emplace(&typeid(node), NodeKind::other);
  if (is_new) place->second = name_kind(node);
  return place->second;
}

/// A walk towards the leaves, short enough to cost little: every way must end at a leaf. Ways to constants are allowed
/// where the leaves are parameters of a known model and the result is no larger than one of them: a weight times a mask
/// is a weight, and a batch times a weight is none.
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
    const NodeKind kind = kind_of(node);
    if (kind == NodeKind::leaf) {
      const at::Tensor& leaf = static_cast<const AccumulateGrad&>(node).variable;
      if (leaf.numel() > largest_parameter_ && leaf.has_storage() &&
          registry_.holds(leaf.storage().unsafeGetStorageImpl()))
        largest_parameter_ = leaf.numel();
      return true;
    }
    if (kind == NodeKind::other || kind == NodeKind::softmax || kind == NodeKind::dropout) return false;
    bool any = false;
    for (const auto& edge : node.next_edges()) {
      if (edge.is_valid() && !leads_to_leaves(*edge.function, depth + 1)) return false;
      any = any || edge.is_valid();
      constants_ = constants_ || !edge.is_valid();
    }
    return any;
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
  if (tensor.requires_grad()) return "a leaf that requires grad";
  return weight_slot ? "an operator's weight" : "";
}

const void* parameter_storage(const at::Tensor& tensor, const ParameterRegistry& registry) {
  if (!tensor.has_storage()) return nullptr;
  if (registry.holds(tensor.storage().unsafeGetStorageImpl())) return tensor.storage().unsafeGetStorageImpl();
  constexpr int kMaxNodes = 4;
  NodePtr node = tensor.grad_fn();
  for (int i = 0; i < kMaxNodes && node; ++i) {
    const NodeKind kind = kind_of(*node);
    if (kind == NodeKind::leaf) {
      const at::Tensor& leaf = static_cast<const AccumulateGrad&>(*node).variable;
      const bool is_known = leaf.has_storage() && registry.holds(leaf.storage().unsafeGetStorageImpl());
      return is_known ? leaf.storage().unsafeGetStorageImpl() : nullptr;
    }
    const bool passes = kind == NodeKind::cast || kind == NodeKind::view;
    if (!passes || node->num_outputs() == 0) return nullptr;
    node = node->next_edge(0).function;
  }
  return nullptr;
}

bool is_softmax_result(const at::Tensor& tensor) {
  constexpr int kMaxNodes = 8;
  NodePtr node = tensor.grad_fn();
  for (int i = 0; i < kMaxNodes && node; ++i) {
    const NodeKind kind = kind_of(*node);
    if (kind == NodeKind::softmax) return true;
    const bool passes =
        kind == NodeKind::cast || kind == NodeKind::view || kind == NodeKind::scaling || kind == NodeKind::dropout;
    if (!passes || node->num_outputs() == 0) return false;
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
  for (int i = 0; i < kMaxViews && node && kind_of(*node) == NodeKind::view; ++i) {
    if (node->num_outputs() != 1) return nullptr;
    node = node->next_edge(0).function;
  }
  return node && kind_of(*node) == NodeKind::cast ? node : nullptr;
}

}  // namespace actzip::torch
