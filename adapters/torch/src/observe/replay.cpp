#include "observe/replay.hpp"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <cstring>
#include <exception>
#include <memory>
#include <typeinfo>
#include <utility>

#include "base/backward.hpp"
#include "operators/operator_table.hpp"

namespace actzip::torch {

using ::torch::autograd::AccumulateGrad;
using ::torch::autograd::Edge;
using ::torch::autograd::Node;

namespace {

/// Reduces `gradient` to the shape and type of `sent`, as the engine does: sums broadcast dimensions.
at::Tensor shaped_as(const at::Tensor& gradient, const at::Tensor& sent) {
  if (!gradient.defined() || !sent.defined()) return {};
  const at::Tensor summed = gradient.sizes() == sent.sizes() ? gradient : at::sum_to(gradient, sent.sizes());
  return summed.scalar_type() == sent.scalar_type() ? summed : summed.to(sent.scalar_type());
}

class ListeningHook final : public ::torch::autograd::FunctionPostHook {
 public:
  explicit ListeningHook(Hear hear) : hear_(std::move(hear)) {}
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& outputs,
                                     const std::vector<at::Tensor>& inputs) override {
    if (!is_in_transform()) hear_(outputs, inputs);
    return outputs;
  }
  void compiled_args(::torch::dynamo::autograd::CompiledNodeArgs& /*args*/) const override {
    refuse_compiled_autograd();
  }

 private:
  Hear hear_;
};

}  // namespace

bool can_run_again(const Node& node) {
  const char* const name = typeid(node).name();  // in the namespace torch::autograd::generated, or in actzip
  return std::strstr(name, "9generated") != nullptr || std::strstr(name, "6actzip") != nullptr;
}

std::optional<std::vector<at::Tensor>> run_again(Node& node, std::vector<at::Tensor> gradients,
                                                 const std::vector<at::Tensor>& sent) {
  try {
    std::vector<at::Tensor> result = node(std::move(gradients));
    for (std::size_t e = 0; e < sent.size(); ++e) result[e] = shaped_as(result[e], sent[e]);
    return result;
  } catch (const std::exception&) {
    forget_exception();
    return std::nullopt;
  }
}

bool is_in_transform() {
  using c10::impl::tls_is_dispatch_key_included;
  return tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         tls_is_dispatch_key_included(c10::DispatchKey::VmapMode);  // is_grads_batched of torch.autograd.grad
}

void listen_to(Node& node, Hear hear) { node.add_post_hook(std::make_unique<ListeningHook>(std::move(hear))); }

at::Tensor norm_of(const at::Tensor& tensor) {
  if (tensor.is_complex()) return norm_of(at::view_as_real(tensor.resolve_conj()));
  return norms_of(tensor, std::nullopt);
}

at::Tensor norms_of(const at::Tensor& tensor, at::OptionalIntArrayRef dimensions) {
  const auto type = tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;  // torch allows no narrower type
  return at::linalg_vector_norm(tensor, 2, dimensions, false, type).to(at::kFloat);
}

bool is_parameter(const Edge& edge) { return dynamic_cast<const AccumulateGrad*>(edge.function.get()) != nullptr; }

bool is_cast_or_transposition(const Node& node) {
  const OperatorRow* const row = find_node(node);
  return row != nullptr && (row->passes_on == PassesOn::transposition || row->passes_on == PassesOn::cast);
}

bool leads_to_parameter(const Edge& edge) {
  const Edge* at = &edge;
  while (at->is_valid() && !is_parameter(*at)) {
    if (!is_cast_or_transposition(*at->function)) return false;
    at = &at->function->next_edges().front();
  }
  return at->is_valid();
}

}  // namespace actzip::torch
