// Layers that work element by element.
#include <ATen/TensorOperators.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/leaky_relu_backward.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/native_dropout_backward.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

#include "encoded/encoded_tensor.hpp"
#include "layers/fused_activation.hpp"
#include "layers/recipe.hpp"

namespace actzip::torch::layers {

namespace {

const OperatorInfo kRelu{"relu", {}};
const OperatorInfo kLeakyRelu{"leaky_relu", {"self"}};
const OperatorInfo kGelu{"gelu", {"self"}};
const OperatorInfo kSilu{"silu", {"self"}};
const OperatorInfo kDropout{"dropout.mul", {"self", "other"}};
const OperatorInfo kNativeDropout{"native_dropout", {}};

/// While it lives, operators may work in place on `tensor`, below autograd. Its version counter still counts the
/// change.
class InPlace {
 public:
  explicit InPlace(const at::Tensor& tensor) { ::torch::autograd::check_inplace(tensor, /*requires_grad=*/true); }

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset};
};

/// A node that saves one tensor, with a gradient that depends on it and on the gradient from above.
template <class Function>
class PointwiseNode final : public LayerNode {
 public:
  PointwiseNode(const char* name, Function function) : LayerNode(name), function_(std::move(function)) {}

  Packed saved;

 private:
  variable_list backward(const at::Tensor& gradient) override {
    return {function_(gradient, for_known_operator(saved))};
  }
  void release() override { saved = {}; }

  Function function_;
};

template <class Function>
auto pointwise_node(const char* name, Function function) {
  return make_node<PointwiseNode<Function>>(name, std::move(function));
}

/// A layer that saves its input.
template <class Run, class Function>
Result from_input(Forward& forward, const OperatorInfo& op, const at::Tensor& input, const Run& run, const char* name,
                  Function function) {
  at::Tensor result = below_autograd([&] { return run(input); });
  const auto node = pointwise_node(name, std::move(function));
  node->saved = forward.keep(op, {0}, input);
  forward.connect(node, {input}, result);
  return result;
}

/// The same, computed in the pass that encodes the input if possible.
template <class Run, class Function>
Result fused(Forward& forward, const OperatorInfo& op, Activation activation, const at::Tensor& input, const Run& run,
             const char* name, Function function) {
  const auto node = pointwise_node(name, std::move(function));
  ReservedPack reserved = forward.reserve(op, {0}, input);
  at::Tensor result = activate_into(reserved.room, activation, input);
  node->saved = forward.keep(std::move(reserved), result.defined() ? Written::tensor : Written::nothing);
  if (!result.defined()) result = below_autograd([&] { return run(input); });
  forward.connect(node, {input}, result);
  return result;
}

/// A layer that saves its result. If `inplace`, `run` works in place.
template <class Run, class Node>
at::Tensor connected(Forward& forward, const at::Tensor& input, bool inplace, const Run& run, const Node& node) {
  if (inplace) {
    {
      const InPlace in_place(input);
      run(input);
    }
    forward.connect_inplace(node, input);
    return input;
  }
  at::Tensor result = below_autograd([&] { return run(input); });
  forward.connect(node, {input}, result);
  return result;
}

/// Offers the norm's recipe, with the ReLU's mask, to the layers that follow.
void offer_masked(LayerNode& node, const at::Tensor& result, Recipe recipe, const Packed& mask) {
  recipe.mask = mask;
  node.recipe = share(std::move(recipe));
  node.result = Stamp(result);
}

/// An in-place ReLU on the result of a batch norm: one node for both.
template <class Node>
at::Tensor relu_behind_norm(Forward& forward, const at::Tensor& input, const Recipe& before, const Node& joined) {
  const auto run = [](const at::Tensor& x) { return at::relu_(const_cast<at::Tensor&>(x)); };
  at::Tensor result = connected(forward, input, /*inplace=*/true, run, joined);
  ReservedPack reserved = forward.reserve(kRelu, {SlotCode::kResult}, result);
  const bool is_known = copy_signs_into(reserved.room, std::exchange(joined->signs, {}));
  joined->mask = forward.keep(std::move(reserved), is_known ? Written::tensor : Written::nothing);
  offer_masked(*joined, result, before, *joined->mask);
  return result;
}

}  // namespace

Result relu(const Layer& layer, const at::Tensor& input, bool inplace) {
  Forward forward(layer, {input});
  if (!forward.keeps()) return std::nullopt;
  const auto before = layer.options().derive ? recipe_of(input) : nullptr;
  if (const auto joined = inplace && before ? joined_with_relu(input) : nullptr) {
    return relu_behind_norm(forward, input, *before, joined);
  }
  const auto node = pointwise_node("ActzipRelu", [](const at::Tensor& gradient, const at::Tensor& result) {
    return at::threshold_backward(gradient, result, 0);
  });
  const auto run = [&](const at::Tensor& x) { return inplace ? at::relu_(const_cast<at::Tensor&>(x)) : at::relu(x); };
  at::Tensor result = connected(forward, input, inplace, run, node);
  node->saved = forward.keep(kRelu, {SlotCode::kResult}, result);
  if (before && !before->mask) offer_masked(*node, result, *before, node->saved);
  return result;
}

Result leaky_relu(const Layer& layer, const at::Tensor& input, double slope, bool inplace) {
  Forward forward(layer, {input});
  if (!forward.keeps() || (inplace && slope < 0)) return std::nullopt;
  const auto gradient_of = [slope, inplace](const at::Tensor& gradient, const at::Tensor& saved) {
    return at::leaky_relu_backward(gradient, saved, slope, inplace);
  };
  if (!inplace) {
    return from_input(
        forward, kLeakyRelu, input, [&](const at::Tensor& x) { return at::leaky_relu(x, slope); }, "ActzipLeakyRelu",
        gradient_of);
  }
  const auto node = pointwise_node("ActzipLeakyRelu", gradient_of);
  const auto run = [&](const at::Tensor& x) {
    at::leaky_relu_(const_cast<at::Tensor&>(x), slope);
    return x;
  };
  at::Tensor result = connected(forward, input, true, run, node);
  node->saved = forward.keep(kLeakyRelu, {SlotCode::kResult}, result);
  return result;
}

Result gelu(const Layer& layer, const at::Tensor& input, std::string_view approximate) {
  Forward forward(layer, {input});
  if (!forward.keeps()) return std::nullopt;
  const std::string how(approximate);
  return fused(
      forward, kGelu, how == "tanh" ? Activation::gelu_tanh : Activation::gelu, input,
      [&](const at::Tensor& x) { return at::gelu(x, how); }, "ActzipGelu",
      [how](const at::Tensor& gradient, const at::Tensor& x) { return at::gelu_backward(gradient, x, how); });
}

Result silu(const Layer& layer, const at::Tensor& input, bool inplace) {
  Forward forward(layer, {input});
  if (!forward.keeps()) return std::nullopt;
  const auto gradient_of = [](const at::Tensor& gradient, const at::Tensor& x) {
    return at::silu_backward(gradient, x);
  };
  if (!inplace) {
    return fused(
        forward, kSilu, Activation::silu, input, [](const at::Tensor& x) { return at::silu(x); }, "ActzipSilu",
        gradient_of);
  }
  const auto node = pointwise_node("ActzipSilu", gradient_of);
  {
    const at::NoGradGuard no_graph;  // the input is about to be overwritten
    node->saved = forward.keep(kSilu, {0}, input.clone());
  }
  return connected(
      forward, input, true,
      [](const at::Tensor& x) {
        at::silu_(const_cast<at::Tensor&>(x));
        return x;
      },
      node);
}

Result dropout(const Layer& layer, const at::Tensor& input, double p, bool inplace) {
  Forward forward(layer, {input});
  if (!forward.keeps() || p <= 0.0 || p >= 1.0) return std::nullopt;
  const double scale = 1.0 / (1.0 - p);
  at::Tensor mask;
  if (input.is_cuda() && !inplace) {  // as torch does, so that it draws the same numbers
    const auto node = pointwise_node("ActzipDropout", [scale](const at::Tensor& gradient, const at::Tensor& saved) {
      return at::native_dropout_backward(gradient, saved, scale);
    });
    const auto run = [&](const at::Tensor& x) {
      auto [result, drawn] = at::native_dropout(x, p, true);
      mask = drawn;
      return result;
    };
    at::Tensor result = connected(forward, input, false, run, node);
    node->saved = forward.keep(kNativeDropout, {SlotCode::kOther}, mask);
    return result;
  }
  const auto node = pointwise_node(
      "ActzipDropout", [](const at::Tensor& gradient, const at::Tensor& saved) { return gradient * saved; });
  const auto run = [&](const at::Tensor& x) {
    mask = at::empty_like(x).bernoulli_(1.0 - p).div_(1.0 - p);
    return inplace ? x.mul_(mask) : x * mask;
  };
  at::Tensor result = connected(forward, input, inplace, run, node);
  OperatorFacts facts;
  facts.factor = 1.0F / static_cast<float>(1.0 - p);
  node->saved = forward.keep(kDropout, {1}, mask, facts, {});
  return result;
}

}  // namespace actzip::torch::layers
