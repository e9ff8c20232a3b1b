#include "operators.hpp"

#include <ATen/SequenceNumber.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "attention.hpp"
#include "session_impl.hpp"

namespace actzip::torch {

namespace {

/// Frames are used again, never freed: entering an operator allocates nothing.
struct ThreadState {
  std::deque<Frame> frames;  // a deque: a frame stays where it is while deeper ones are added
  std::size_t depth = 0;
  std::vector<const std::string*> modules;
  std::vector<SessionImpl*> listeners;
  at::CallbackHandle callback = 0;
};
thread_local ThreadState t_state;

double number_of(const c10::IValue& value) {
  if (value.isDouble()) return value.toDouble();
  if (value.isInt()) return static_cast<double>(value.toInt());
  if (value.isBool()) return value.toBool() ? 1.0 : 0.0;
  return 0.0;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  ThreadState& state = t_state;
  if (state.depth == state.frames.size()) state.frames.emplace_back();
  Frame& frame = state.frames[state.depth++];
  const auto inputs = function.inputs();
  frame.name = function.name();
  frame.overload = function.overload_name();
  frame.count = static_cast<int>(std::min<std::size_t>(inputs.size(), kMaxArguments));
  frame.other_saves = 0;
  frame.info = nullptr;
  for (int i = 0; i < frame.count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool is_tensor = inputs[at].isTensor();
    frame.tensors[at] = is_tensor ? inputs[at].toTensor().unsafeGetTensorImpl() : nullptr;
    frame.numbers[at] = is_tensor ? 0.0 : number_of(inputs[at]);
  }
  return nullptr;
}

/// The node that will run in backward for an operator with these results.
auto node_of(const std::vector<c10::IValue>& results) -> std::decay_t<decltype(at::Tensor().grad_fn())> {
  for (const c10::IValue& result : results) {
    if (result.isTensor() && result.toTensor().defined() && result.toTensor().grad_fn()) {
      return result.toTensor().grad_fn();
    }
  }
  return nullptr;
}

void hand_over_tried(Frame& frame, const at::RecordFunction& function) {
  if (const auto node = node_of(function.outputs())) frame.stream->watch(*node, frame.tried);
  frame.tried.clear();
  frame.stream.reset();
}

void on_end(const at::RecordFunction& function, at::ObserverContext* /*context*/) {
  ThreadState& state = t_state;
  if (state.depth == 0) return;
  Frame& frame = state.frames[--state.depth];
  if (!frame.tried.empty()) hand_over_tried(frame, function);
  frame.attention.reset();
}

/// "aten::addmm" -> "addmm"
std::string_view base_name(std::string_view name) {
  const std::size_t colons = name.rfind("::");
  return colons == std::string_view::npos ? name : name.substr(colons + 2);
}

bool is_any_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

/// What makes an operator known by another name than others of its kind, where the policy must tell them apart.
constexpr const char* kNoPrefix = "";
constexpr const char* kDropout = "dropout.";  ///< a dropout's product with its mask
constexpr const char* kSoftmax = "softmax.";  ///< what a batched product saves beside a softmax's result: attention's v

bool is_dropout_product(const Frame& frame, const Frame* parent) {
  if (parent == nullptr || parent->name == nullptr) return false;
  return is_any_of(base_name(parent->name), {"dropout", "dropout_", "feature_dropout", "feature_dropout_"}) &&
         is_any_of(base_name(frame.name), {"mul", "mul_"});
}

/// The position of the first factor of a batched product, which the second follows; -1 for other operators.
int first_factor(const Frame& frame) {
  const std::string_view name = base_name(frame.name);
  if (name == "bmm") return 0;
  return name == "baddbmm" ? 1 : -1;
}

bool is_beside_softmax(const Frame& frame, SlotCode slot) {
  const int first = first_factor(frame);
  if (first < 0 || first + 1 >= frame.count || slot.value < first || slot.value > first + 1) return false;
  const at::Tensor partner = tensor_at(frame, slot.value == first ? first + 1 : first);
  return partner.defined() && is_softmax_result(partner);
}

OperatorInfo make_info(const Frame& frame, std::string name) {
  OperatorInfo info{std::move(name), {}};
  const auto handle = c10::Dispatcher::singleton().findSchema({frame.name, frame.overload ? frame.overload : ""});
  if (handle) {
    for (const auto& argument : handle->schema().arguments()) info.arguments.push_back(argument.name());
  }
  return info;
}

/// All operators ever seen. Names of torch's operators have one address for ever; others' may be used again, so what is
/// found by address is compared.
class OperatorTable {
 public:
  const OperatorInfo& find(const Frame& frame, const char* prefix) {
    const std::string_view base = base_name(frame.name);
    const Address address{frame.name, frame.overload, prefix};
    const std::lock_guard lock(mutex_);
    const auto known = by_address_.find(address);
    if (known != by_address_.end() && std::string_view(known->second->name).ends_with(base)) return *known->second;
    std::string name = prefix + std::string(base);
    std::string key = name + '.' + (frame.overload != nullptr ? frame.overload : "");
    auto [place, is_new] = by_name_.try_emplace(std::move(key));
    if (is_new) place->second = make_info(frame, std::move(name));
    by_address_[address] = &place->second;
    return place->second;
  }

 private:
  struct Address {
    const char* name;
    const char* overload;
    const char* prefix;  ///< one of the above
    bool operator==(const Address&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Address& address) const noexcept {
      const auto name = reinterpret_cast<std::uintptr_t>(address.name);
      const auto overload = reinterpret_cast<std::uintptr_t>(address.overload);
      return name ^ (overload << 1U) ^ (reinterpret_cast<std::uintptr_t>(address.prefix) << 2U);
    }
  };
  std::mutex mutex_;
  std::unordered_map<std::string, OperatorInfo> by_name_;  // its values stay where they are
  std::unordered_map<Address, const OperatorInfo*, Hash> by_address_;
};

const OperatorInfo& operator_info(const Frame& frame, const char* prefix) {
  static auto* table = new OperatorTable;
  return table->find(frame, prefix);
}

const OperatorInfo& unknown_operator() {
  static const auto* info = new OperatorInfo{"unknown", {}};
  return *info;
}

/// Whether the operator that runs now made `tensor`: its node is the last that was numbered.
bool is_own_result(const at::Tensor& tensor) {
  const auto node = tensor.grad_fn();
  return node && node->sequence_nr() + 1 == at::sequence_number::peek();
}

const void* first_parameter(const Frame& frame, const ParameterRegistry& parameters) {
  for (int i = 0; i < frame.count; ++i) {
    const at::Tensor tensor = tensor_at(frame, i);
    const void* storage = tensor.defined() ? parameter_storage(tensor, parameters) : nullptr;
    if (storage != nullptr) return storage;
  }
  return nullptr;
}

SlotCode slot_of(const at::Tensor& tensor, Frame& frame) {
  const auto end = frame.tensors.begin() + frame.count;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const auto found = std::find(frame.tensors.begin(), end, impl);
  if (found != end) return {static_cast<int>(found - frame.tensors.begin())};
  if (is_own_result(tensor)) return {SlotCode::kResult};
  return {SlotCode::kOther + frame.other_saves++};
}

std::int64_t size_along(const c10::TensorImpl* tensor, double dimension) {
  if (tensor == nullptr || tensor->dim() == 0) return 0;
  const auto d = static_cast<std::int64_t>(dimension);
  return tensor->size(d < 0 ? d + tensor->dim() : d);
}

/// Elements of the input's last `dimensions` dimensions: what a pooling index counts.
std::int64_t window(const c10::TensorImpl* input, int dimensions) {
  if (input == nullptr || input->dim() < dimensions) return 0;
  std::int64_t elems = 1;
  for (std::int64_t d = input->dim() - dimensions; d < input->dim(); ++d) elems *= input->size(d);
  return elems;
}

/// What the arguments say about limits, factors and bounds. Positions are those of torch's schemas.
OperatorFacts facts_of(std::string_view op, SlotCode slot, const Frame& frame, const Frame* parent) {
  OperatorFacts facts;
  if (op.starts_with("hardtanh")) {
    facts.lower = static_cast<float>(frame.numbers[1]);
    facts.upper = static_cast<float>(frame.numbers[2]);
  } else if (op.starts_with("threshold")) {
    facts.lower = static_cast<float>(frame.numbers[1]);
  } else if (op.starts_with("dropout.")) {
    facts.factor = 1.0F / static_cast<float>(1.0 - parent->numbers[1]);
  } else if (op == "mul" || op == "mul_") {
    const c10::TensorImpl* other = slot.value == 0 || slot.value == 1 ? frame.tensors[1 - slot.value] : nullptr;
    if (other != nullptr) facts.meets_elems = other->numel();
    facts.meets_parameter = frame.parameter != nullptr;
  } else if (op.starts_with("pow")) {
    facts.exponent = static_cast<float>(frame.numbers[1]);
  } else if (op == "native_layer_norm" || op == "_fused_rms_norm") {
    facts.row_elems = size_along(frame.tensors[0], -1);
  } else if (op.find("batch_norm") != std::string_view::npos || op.find("conv") != std::string_view::npos) {
    const std::int64_t channels =
        frame.tensors[0] != nullptr && frame.tensors[0]->dim() > 1 ? frame.tensors[0]->size(1) : 0;
    facts.row_elems = channels > 0 ? frame.tensors[0]->numel() / channels : 0;
  } else if (op == "addmm" || op == "mm" || op == "linear" || op == "matmul" || op == "addbmm") {
    facts.row_elems =
        slot.value < frame.count ? size_along(frame.tensors[static_cast<std::size_t>(slot.value)], -1) : 0;
  } else if (op == "embedding") {
    facts.index_bound = size_along(frame.tensors[0], 0);
  } else if (op.starts_with("gather") || op.starts_with("scatter") || op.starts_with("index_")) {
    facts.index_bound = size_along(frame.tensors[0], frame.numbers[1]);
  } else if (op.find("max_pool") != std::string_view::npos) {
    facts.index_bound = window(frame.tensors[0], op.find("3d") != std::string_view::npos ? 3 : 2);
  }
  return facts;
}

}  // namespace

at::Tensor tensor_at(const Frame& frame, int position) {
  auto* impl = const_cast<c10::TensorImpl*>(frame.tensors[static_cast<std::size_t>(position)]);
  using Pointer = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  return impl == nullptr ? at::Tensor() : at::Tensor(Pointer::reclaim_copy(impl));
}

bool start_listening(SessionImpl* session) {
  auto& listeners = t_state.listeners;
  const bool is_new = std::ranges::find(listeners, session) == listeners.end();
  const bool needs_modules = is_new && session->begin_step();
  if (listeners.empty()) {
    t_state.callback = at::addThreadLocalCallback(at::RecordFunctionCallback(on_start, on_end)
                                                      .scopes({at::RecordScope::FUNCTION})
                                                      .needsInputs(true)
                                                      .needsOutputs(session->observe_step()));
  }
  listeners.push_back(session);
  return needs_modules;
}

void stop_listening() {
  auto& listeners = t_state.listeners;
  SessionImpl* session = listeners.back();
  listeners.pop_back();
  if (listeners.empty()) {
    at::removeCallback(t_state.callback);
    t_state.modules.clear();  // a step may end inside of a module, and its path with the session
  }
  if (std::ranges::find(listeners, session) == listeners.end()) session->end_step();
}

bool is_listening(const SessionImpl* session) {
  return std::ranges::find(t_state.listeners, session) != t_state.listeners.end();
}

Unheard::Unheard() {
  if (t_state.listeners.empty() || at::hasGlobalCallbacks()) return;
  if (at::get_record_function_tls_().sorted_tls_callbacks_.size() == 1) guard_.emplace(false);
}

Saver current_saver(const at::Tensor& tensor, const ParameterRegistry& parameters) {
  ThreadState& state = t_state;
  if (state.depth == 0) return {&unknown_operator(), {SlotCode::kOther}, nullptr, {}};
  Frame& frame = state.frames[state.depth - 1];
  const Frame* parent = state.depth > 1 ? &state.frames[state.depth - 2] : nullptr;
  if (frame.info == nullptr) {
    frame.info = &operator_info(frame, is_dropout_product(frame, parent) ? kDropout : kNoPrefix);
    frame.parameter = first_parameter(frame, parameters);
    frame.attention = AttentionCall::of(frame);
  }
  const SlotCode slot = slot_of(tensor, frame);
  const OperatorInfo* info = is_beside_softmax(frame, slot) ? &operator_info(frame, kSoftmax) : frame.info;
  Saver saver{info, slot, frame.parameter, facts_of(info->name, slot, frame, parent), frame.attention};
  if (frame.attention) {
    const auto part = AttentionCall::part_of(slot, tensor);
    saver.facts.recomputable = part && frame.attention->can_compute(*part);
  }
  return saver;
}

void note_tried(const TriedSave& save, const std::shared_ptr<NoiseStream>& stream) {
  ThreadState& state = t_state;
  if (state.depth == 0) return;
  Frame& frame = state.frames[state.depth - 1];
  frame.tried.push_back(save);
  frame.stream = stream;
}

std::string slot_name(const OperatorInfo& op, SlotCode slot) {
  if (slot.value == SlotCode::kResult) return "result";
  if (slot.value >= SlotCode::kOther) return "aux" + std::to_string(slot.value - SlotCode::kOther);
  const auto at = static_cast<std::size_t>(slot.value);
  return at < op.arguments.size() ? op.arguments[at] : "argument" + std::to_string(at);
}

const std::string* current_module() { return t_state.modules.empty() ? nullptr : t_state.modules.back(); }

void enter_module(const std::string* path) { t_state.modules.push_back(path); }

void leave_module(const std::string* path) {
  auto& modules = t_state.modules;
  const auto found = std::find(modules.rbegin(), modules.rend(), path);
  if (found != modules.rend()) modules.erase(std::prev(found.base()), modules.end());
}

}  // namespace actzip::torch
