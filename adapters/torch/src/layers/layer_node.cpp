#include "layers/layer_node.hpp"

#include <ATen/autocast_mode.h>
#include <c10/core/impl/PythonDispatcherTLS.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <atomic>

#include "hooks/engine.hpp"
#include "layers/recipe.hpp"

namespace actzip::torch {

namespace {

std::string numbered_name() {
  static std::atomic<int> count{0};
  return "layer " + std::to_string(++count);
}

}  // namespace

Layer::Layer(std::string name, const Session& session, const LayerOptions& options)
    : name_(std::move(name)), options_(options), session_(session.impl()), path_(session_->module_path(name_)) {}

Layer::Layer(std::string name, const LayerOptions& options)
    : name_(name.empty() ? numbered_name() : std::move(name)), options_(options) {}

Session& default_session() {
  static auto* session = new Session;  // never destroyed: layers may run until the end of main()
  return *session;
}

void begin_step(const Session& session) {
  if (!is_listening(*session.impl())) session.impl()->begin_layer_step();
}

void end_step(const Session& session) {
  if (!is_listening(*session.impl())) session.impl()->samples->end_step();
}

namespace layers {

namespace {

bool is_plain(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kOthers({c10::DispatchKey::Python, c10::DispatchKey::Functionalize,
                                         c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
  return tensor.layout() == c10::kStrided && !tensor.key_set().has_any(kOthers) && !tensor.is_nested() &&
         !tensor.is_meta() && !tensor.is_inference() && !tensor.is_complex() && !tensor._fw_grad(0).defined();
}

/// Whether a mode is active that must see torch's own operators.
bool is_watched() {
  return c10::impl::TorchDispatchModeTLS::any_modes_set() || c10::impl::PythonDispatcherTLS::get_state() != nullptr ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Tracer);
}

/// Returns the session that `layer` uses now; null if the layer must not keep anything.
std::shared_ptr<SessionImpl> keeper_for(const Layer& layer) {
  Saving saving = who_saves();
  if (saving.is_others || is_watched()) return nullptr;
  if (layer.session()) return layer.session();
  if (saving.session) return std::move(saving.session);
  return default_session().impl();
}

/// Reads facts as if the operator had been called with `tensor` alone.
OperatorFacts facts_by_table(const OperatorInfo& op, SlotCode slot, const at::Tensor& tensor) {
  OperatorFacts facts;
  if (op.row == nullptr || op.row->facts == nullptr) return facts;
  Call call;
  if (slot.value < kMaxArguments) {
    call.count = slot.value + 1;
    call.tensors[static_cast<std::size_t>(slot.value)] = tensor.unsafeGetTensorImpl();
  }
  op.row->facts(call, /*outer=*/nullptr, slot, facts);
  return facts;
}

/// Makes a second differentiation an error.
variable_list once_differentiable(variable_list gradients, const std::string& layer) {
  const auto error = make_node<::torch::autograd::DelayedError>(
      "actzip: " + layer + " cannot be differentiated twice; actzip.restore(model) gives torch's own layers back",
      static_cast<std::int64_t>(gradients.size()));
  for (at::Tensor& gradient : gradients) {
    if (gradient.defined()) gradient = gradient.detach().requires_grad_();
  }
  return (*error)(std::move(gradients));
}

}  // namespace

Borrowed::Borrowed(const at::Tensor& tensor) : tensor_(tensor) {
  if (tensor.defined() && !tensor.is_inference())
    version_ = tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

at::Tensor Borrowed::get() const {
  if (!tensor_.defined() || tensor_.is_inference()) return tensor_;
  const auto now = tensor_.unsafeGetTensorImpl()->version_counter().current_version();
  TORCH_CHECK(now == version_,
              "one of the variables needed for gradient computation has been modified by an inplace operation: a ",
              tensor_.toString(), " ", tensor_.sizes(), " is at version ", now, "; expected version ", version_,
              " instead.");
  return tensor_;
}

Stamp::Stamp(const at::Tensor& tensor)
    : storage_(storage_identity(tensor)), data_(tensor.const_data_ptr()), version_(memory_version(tensor)) {}

bool Stamp::fits(const at::Tensor& tensor) const {
  return reinterpret_cast<std::uintptr_t>(tensor.storage().unsafeGetStorageImpl()) == storage_.address &&
         tensor.const_data_ptr() == data_ && memory_version(tensor) == version_;
}

variable_list LayerNode::apply(variable_list&& gradients) {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!is_released_, ::torch::autograd::ERR_BACKWARD_TWICE);
  backward_ran->store(true, std::memory_order_relaxed);
  if (!gradients[0].defined()) return variable_list(num_outputs());
  variable_list result;
  {
    const BelowAutograd below;
    const at::NoGradGuard no_graph;
    result = backward(gradients[0]);
  }
  return at::GradMode::is_enabled() ? once_differentiable(std::move(result), name_) : result;
}

void LayerNode::release_variables() {
  const std::lock_guard lock(mutex_);
  recipe.reset();
  release();
  is_released_ = true;
}

Forward::Forward(const Layer& layer, std::initializer_list<at::Tensor> inputs) : layer_(layer) {
  if (!at::GradMode::is_enabled()) return;
  bool needs_gradient = false;
  for (const at::Tensor& input : inputs) {
    if (!input.defined()) continue;
    if (!is_plain(input) || input.numel() == 0) return;
    needs_gradient = needs_gradient || input.requires_grad();
  }
  if (!needs_gradient) return;
  session_ = keeper_for(layer);
  if (!session_) return;
  session_->begin_after_backward();
  path_ = layer.path() != nullptr ? layer.path() : session_->module_path(layer.name());
  observer_ = session_->observer(*inputs.begin());
}

Forward::~Forward() {
  if (node_ && !tried_.empty()) observer_->watch(*node_, tried_);
  if (node_ && !witnesses_.empty()) witnesses_[0]->guard->watch(*node_, witnesses_);
}

void Forward::connect(const NodePtr& node, std::initializer_list<at::Tensor> inputs, const at::Tensor& result) {
  ::torch::autograd::edge_list edges;
  edges.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    edges.push_back(input.defined() ? ::torch::autograd::impl::gradient_edge(input) : ::torch::autograd::Edge());
  }
  node->set_next_edges(std::move(edges));
  ::torch::autograd::set_history(result, node);
  adopt(node);
}

void Forward::connect_inplace(const NodePtr& node, const at::Tensor& result) {
  if (node->num_outputs() == 0) node->set_next_edges({::torch::autograd::impl::gradient_edge(result)});
  node->add_input_metadata(result);
  ::torch::autograd::impl::rebase_history(result, {node, 0});
  adopt(node);
}

void Forward::adopt(const NodePtr& node) {
  static_cast<LayerNode&>(*node).backward_ran = session_->backward_ran();
  node_ = node;
}

Packed Forward::keep(const OperatorInfo& op, SlotCode slot, const at::Tensor& tensor, const PackHelp& help) {
  return keep(op, slot, tensor, facts_by_table(op, slot, tensor), help);
}

Packed Forward::keep(const OperatorInfo& op, SlotCode slot, const at::Tensor& tensor, const OperatorFacts& facts,
                     const PackHelp& help) {
  const at::NoGradGuard no_graph;
  return noted(session_->pack(tensor, {&op, slot, nullptr, facts}, path_, help));
}

ReservedPack Forward::reserve(const OperatorInfo& op, SlotCode slot, const at::Tensor& tensor) {
  const at::NoGradGuard no_graph;
  return session_->reserve(tensor, {&op, slot, nullptr, facts_by_table(op, slot, tensor)}, path_);
}

Packed Forward::keep(ReservedPack reserved, Written written) {
  const at::NoGradGuard no_graph;
  return noted(session_->pack(std::move(reserved), written));
}

Packed Forward::noted(Packed packed) {
  if (const auto save = packed.tried(); save && observer_) tried_.push_back(*save);
  if (packed.witness()) witnesses_.push_back(packed.witness());
  return packed;
}

at::Tensor lowered(const at::Tensor& tensor) {
  const auto device = tensor.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return tensor;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), tensor, device);
}

at::Tensor raised_on_cuda(const at::Tensor& tensor) {
  const auto device = tensor.device().type();
  if (device != c10::DeviceType::CUDA || !at::autocast::is_autocast_enabled(device)) return tensor;
  return at::autocast::cached_cast(at::kFloat, tensor, device);
}

}  // namespace layers
}  // namespace actzip::torch
