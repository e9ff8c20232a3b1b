#include "parameters.hpp"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <typeindex>

namespace actzip::torch {

namespace {

using ::torch::autograd::AccumulateGrad;
using ::torch::autograd::Node;

enum class NodeKind : std::uint8_t { other, leaf, cast, view, arithmetic };

/// Nodes that a parameter may pass through on its way to the operator that uses it.
constexpr std::array kViews = {
    "TBackward0",          "TransposeBackward0",      "PermuteBackward0", "ViewBackward0",
    "UnsafeViewBackward0", "ReshapeAliasBackward0",   "SelectBackward0",  "SliceBackward0",
    "SplitBackward0",      "SplitWithSizesBackward0", "SqueezeBackward0", "SqueezeBackward1",
    "UnsqueezeBackward0",  "ExpandBackward0",         "AliasBackward0",   "AsStridedBackward0"};
constexpr std::array kArithmetic = {"CloneBackward0",
                                    "MulBackward0",
                                    "DivBackward0",
                                    "AddBackward0",
                                    "SubBackward0",
                                    "NormBackward0",
                                    "NormBackward1",
                                    "MvBackward0",
                                    "DotBackward0",
                                    "VdotBackward0",
                                    "WeightNormInterfaceBackward0"};

NodeKind name_kind(const Node& node) {
  if (dynamic_cast<const AccumulateGrad*>(&node) != nullptr) return NodeKind::leaf;
  const std::string name = node.name();
  if (name == "ToCopyBackward0") return NodeKind::cast;
  if (std::ranges::find(kViews, name) != kViews.end()) return NodeKind::view;
  if (std::ranges::find(kArithmetic, name) != kArithmetic.end()) return NodeKind::arithmetic;
  return NodeKind::other;
}

/// By type, because a node makes its name from its type each time it is asked. Nodes of Python share one type and
/// are `other`, whatever their class is called.
NodeKind kind_of(const Node& node) {
  thread_local std::unordered_map<std::type_index, NodeKind> known;
  const auto [place, is_new] = known.try_emplace(std::type_index(typeid(node)), NodeKind::other);
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
      if (leaf.numel() > largest_parameter_ && registry_.holds(leaf)) largest_parameter_ = leaf.numel();
      return true;
    }
    if (kind == NodeKind::other) return false;
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
  const std::unique_lock lock(mutex_);
  storages_.try_emplace(storage, tensor.storage().getWeakStorageImpl());
}

bool ParameterRegistry::holds(const at::Tensor& tensor) const {
  if (!tensor.has_storage()) return false;
  const std::shared_lock lock(mutex_);
  return storages_.contains(tensor.storage().unsafeGetStorageImpl());
}

std::string_view parameter_reason(const at::Tensor& tensor, const ParameterRegistry& registry, bool weight_slot) {
  if (registry.holds(tensor)) return "a parameter or buffer";
  if (const auto node = tensor.grad_fn()) {
    return LeafWalk(registry).derived_from_leaves(tensor, *node) ? "derived from parameters" : "";
  }
  if (tensor.requires_grad()) return "a leaf that requires grad";
  return weight_slot ? "an operator's weight" : "";
}

Identity cast_source(const at::Tensor& tensor) {
  NodePtr node = tensor.grad_fn();
  constexpr int kMaxViews = 3;
  for (int i = 0; i < kMaxViews && node && kind_of(*node) == NodeKind::view; ++i) {
    if (node->num_outputs() != 1) return {};
    node = node->next_edge(0).function;
  }
  if (!node || kind_of(*node) != NodeKind::cast) return {};
  const auto& source = node->next_edge(0);
  if (!source.is_valid()) return {};
  return {reinterpret_cast<std::uintptr_t>(source.function.get()) + source.input_nr,
          std::make_shared<NodePtr>(source.function)};
}

}  // namespace actzip::torch
