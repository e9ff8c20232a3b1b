// What all layers share: the decision to keep, the node that runs in backward, and the way back to torch's graph.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "actzip/torch_layers.hpp"
#include "session/session_impl.hpp"

namespace actzip::torch::layers {

using ::torch::autograd::Node;
using ::torch::autograd::variable_list;

struct Recipe;

/// A tensor that exists anyway, such as a weight: nothing is kept of it. Throws as torch does if it was modified in
/// place meanwhile.
class Borrowed {
 public:
  Borrowed() = default;
  explicit Borrowed(const at::Tensor& tensor);
  [[nodiscard]] at::Tensor get() const;

 private:
  at::Tensor tensor_;
  std::uint32_t version_ = 0;
};

/// A tensor as it was at some moment, so that it can be told whether it still has the same values.
class Stamp {
 public:
  Stamp() = default;
  explicit Stamp(const at::Tensor& tensor);
  [[nodiscard]] bool fits(const at::Tensor& tensor) const;

 private:
  Identity storage_;
  const void* data_ = nullptr;
  std::uint64_t version_ = 0;
};

/// Operators run as they do below autograd and autocast, which a layer has dealt with itself.
class BelowAutograd {
 public:
  BelowAutograd() : guard_(c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

/// What `function` gives as it runs there.
template <class Function>
auto below_autograd(Function function) {
  const BelowAutograd below;
  return function();
}

/// A node with one result. What it keeps is freed when torch says so.
class LayerNode : public Node {
 public:
  explicit LayerNode(const char* name) : name_(name) {}

  variable_list apply(variable_list&& gradients) final;
  void release_variables() final;
  [[nodiscard]] std::string name() const final { return name_; }

  /// How the result can be computed from what this node keeps; mostly null.
  std::shared_ptr<const Recipe> recipe;
  Stamp result;                                     ///< for which the recipe holds
  std::shared_ptr<std::atomic<bool>> backward_ran;  ///< the session's

 protected:
  /// Gradients in the order of the edges; those that nobody needs may be undefined.
  virtual variable_list backward(const at::Tensor& gradient) = 0;
  virtual void release() = 0;
  [[nodiscard]] bool needs(std::size_t edge) const { return task_should_compute_output(edge); }

 private:
  const char* name_;
  bool is_released_ = false;
};

/// Which pointer holds a node differs between versions of torch, and so does how it is made.
template <class T, class... Arguments>
auto make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodePtr, std::shared_ptr<Node>>) {
    return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), [](T* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<T>(std::forward<Arguments>(arguments)...);
  }
}

/// One forward of a layer.
class Forward {
 public:
  Forward(const Layer& layer, std::initializer_list<at::Tensor> inputs);
  Forward(const Forward&) = delete;
  Forward& operator=(const Forward&) = delete;
  ~Forward();

  /// Whether the layer keeps for itself; if not, torch's operator is to be called.
  [[nodiscard]] bool keeps() const noexcept { return session_ != nullptr; }

  /// Makes `result` a result of `node`, whose edges lead to `inputs`. Keep results only afterwards.
  void connect(const NodePtr& node, std::initializer_list<at::Tensor> inputs, const at::Tensor& result);
  /// The same for a result that has taken the place of its input; a node that has edges keeps them.
  void connect_inplace(const NodePtr& node, const at::Tensor& result);

  /// What is saved in that slot, with the facts that the operator table reads from the tensor.
  Packed keep(const OperatorInfo& op, SlotCode slot, const at::Tensor& tensor, const PackHelp& help = {});
  /// The same with facts that only the layer knows.
  Packed keep(const OperatorInfo& op, SlotCode slot, const at::Tensor& tensor, const OperatorFacts& facts,
              const PackHelp& help);

  /// The first half of keep(), for a layer that may encode the tensor in one pass with its own work: see
  /// actzip::Session::reserve().
  [[nodiscard]] ReservedPack reserve(const OperatorInfo& op, SlotCode slot, const at::Tensor& tensor);
  /// The second half.
  Packed keep(ReservedPack reserved, Written written);

  [[nodiscard]] const Layer& layer() const noexcept { return layer_; }

 private:
  void adopt(const NodePtr& node);
  Packed noted(Packed packed);

  const Layer& layer_;
  Unheard unheard_;  ///< an open scope need not look at a layer's operators: nothing of them is saved
  std::shared_ptr<SessionImpl> session_;
  const std::string* path_ = nullptr;
  NodePtr node_;
  std::shared_ptr<NoiseStream> observer_;
  std::vector<TriedSave> tried_;
  Witnesses witnesses_;
};

/// While a layer writes an encoding itself.
class Writing {
 public:
  Writing(const Reservation& room, c10::Device device)
      : device_(guard_for(device)), range_("encode", [&]() -> const std::string& { return room.site(); }) {}

 private:
  at::NoGradGuard no_graph_;
  c10::OptionalDeviceGuard device_;
  ProfileRange range_;
};

/// An input of a layer in backward: kept, or derived from what the norm before it keeps.
class Input {
 public:
  Input() = default;
  /// `given` is the layer's input, `used` what became of it by autocast.
  Input(Forward& forward, const OperatorInfo& op, const at::Tensor& given, const at::Tensor& used);
  [[nodiscard]] at::Tensor restore() const;

 private:
  Packed packed_;
  std::shared_ptr<const Recipe> recipe_;
  c10::ScalarType type_ = c10::ScalarType::Undefined;
};

/// As autocast does with the arguments of products and convolutions.
at::Tensor lowered(const at::Tensor& tensor);
/// As autocast does on CUDA with the arguments of norms by row.
at::Tensor raised_on_cuda(const at::Tensor& tensor);

}  // namespace actzip::torch::layers
