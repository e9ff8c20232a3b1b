// What all layers share: the decision whether the layer keeps its own tensors, the node that runs in backward, and the
// connection to torch's graph.
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

/// A tensor that exists anyway, such as a weight, so nothing is stored for it. get() throws, as torch does, if the
/// tensor was modified in place meanwhile.
class Borrowed {
 public:
  Borrowed() = default;
  explicit Borrowed(const at::Tensor& tensor);
  [[nodiscard]] at::Tensor get() const;

 private:
  at::Tensor tensor_;
  std::uint32_t version_ = 0;
};

/// Identifies a tensor's values at some moment. fits() says whether a tensor still has them.
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

/// While it lives, operators run below autograd and autocast, which the layer has handled itself.
class BelowAutograd {
 public:
  BelowAutograd() : guard_(c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

/// Returns what `function` returns when it runs in that state.
template <class Function>
auto below_autograd(Function function) {
  const BelowAutograd below;
  return function();
}

/// A node with one result. torch says when it frees what it keeps.
class LayerNode : public Node {
 public:
  explicit LayerNode(const char* name) : name_(name) {}

  variable_list apply(variable_list&& gradients) final;
  void release_variables() final;
  [[nodiscard]] std::string name() const final { return name_; }

  /// How the result can be computed from what this node keeps; mostly null.
  std::shared_ptr<const Recipe> recipe;
  Stamp result;                                     ///< the result that the recipe computes
  std::shared_ptr<std::atomic<bool>> backward_ran;  ///< the session's

 protected:
  /// Returns gradients in the order of the edges; those that are not needed may be undefined.
  virtual variable_list backward(const at::Tensor& gradient) = 0;
  virtual void release() = 0;
  [[nodiscard]] bool needs(std::size_t edge) const { return task_should_compute_output(edge); }

 private:
  const char* name_;
  bool is_released_ = false;
};

/// The pointer type for nodes, and how nodes are made, differ between versions of torch.
template <class T, class... Arguments>
auto make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodePtr, std::shared_ptr<Node>>) {
    return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), [](T* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<T>(std::forward<Arguments>(arguments)...);
  }
}

/// One forward of a layer. `inputs` are the tensors through which gradients may flow.
class Forward {
 public:
  Forward(const Layer& layer, std::initializer_list<at::Tensor> inputs);
  Forward(const Forward&) = delete;
  Forward& operator=(const Forward&) = delete;
  ~Forward();

  /// Whether the layer keeps its tensors itself. If not, call torch's operator.
  [[nodiscard]] bool keeps() const noexcept { return session_ != nullptr; }

  /// Makes `result` a result of `node`, whose edges lead to `inputs`. Do so before keep() is called for a result.
  void connect(const NodePtr& node, std::initializer_list<at::Tensor> inputs, const at::Tensor& result);
  /// The same for a result that was computed in place of its input. A node that has edges already keeps them.
  void connect_inplace(const NodePtr& node, const at::Tensor& result);

  /// Keeps what the operator saves in `slot`, with the facts that the operator table reads from the tensor.
  Packed keep(const OperatorInfo& op, SlotCode slot, const at::Tensor& tensor, const PackHelp& help = {});
  /// The same with facts that only the layer knows.
  Packed keep(const OperatorInfo& op, SlotCode slot, const at::Tensor& tensor, const OperatorFacts& facts,
              const PackHelp& help);

  /// The first half of keep(), for a layer that may encode the tensor in its own pass: see actzip::Session::reserve().
  [[nodiscard]] ReservedPack reserve(const OperatorInfo& op, SlotCode slot, const at::Tensor& tensor);
  /// The second half.
  Packed keep(ReservedPack reserved, Written written);

  [[nodiscard]] const Layer& layer() const noexcept { return layer_; }

 private:
  void adopt(const NodePtr& node);
  Packed noted(Packed packed);

  const Layer& layer_;
  Unheard unheard_;  ///< scopes ignore a layer's operators: nothing of them is saved
  std::shared_ptr<SessionImpl> session_;
  const std::string* path_ = nullptr;
  NodePtr node_;
  std::shared_ptr<NoiseStream> observer_;
  std::vector<TriedSave> tried_;
  Witnesses witnesses_;
};

/// The state while a layer writes an encoding itself: device, no autograd, a range in the profile.
class Writing {
 public:
  Writing(const Reservation& room, c10::Device device)
      : device_(guard_for(device)), range_("encode", [&]() -> const std::string& { return room.site(); }) {}

 private:
  at::NoGradGuard no_graph_;
  c10::OptionalDeviceGuard device_;
  ProfileRange range_;
};

/// An input of a layer that backward needs: kept, or derived from what the norm before the layer keeps.
class Input {
 public:
  Input() = default;
  /// `given` is the layer's input, `used` the same after autocast.
  Input(Forward& forward, const OperatorInfo& op, const at::Tensor& given, const at::Tensor& used);
  [[nodiscard]] at::Tensor restore() const;

 private:
  Packed packed_;
  std::shared_ptr<const Recipe> recipe_;
  c10::ScalarType type_ = c10::ScalarType::Undefined;
};

/// Casts as autocast does for the arguments of products and convolutions.
at::Tensor lowered(const at::Tensor& tensor);
/// Casts as autocast does on CUDA for the arguments of layer, group and RMS norms.
at::Tensor raised_on_cuda(const at::Tensor& tensor);

}  // namespace actzip::torch::layers
