#include "observe/running_operators.hpp"

#include <ATen/SequenceNumber.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>

#include "actzip/error.hpp"
#include "base/convert.hpp"
#include "observe/gradient_guard.hpp"
#include "observe/memory_log.hpp"
#include "operators/parameters.hpp"

namespace actzip::torch {

namespace {

/// Frames are reused and never freed, so entering an operator allocates nothing.
struct ThreadState {
  std::deque<Frame> frames;  // a deque: a frame stays where it is while deeper ones are added
  std::size_t depth = 0;
  int torch_depth = 0;  ///< how many running operators are torch's own
  struct Entered {
    const Listener* session;
    const std::string* path;
    bool operator==(const Entered&) const = default;
  };
  std::vector<Entered> modules;
  std::vector<std::shared_ptr<Listener>> listeners;
  MemoryLog log;
  Witnesses without_node;     ///< of functions: callbacks do not get their results
  int modules_run_again = 0;  ///< how many ModuleRunsAgain live
  at::CallbackHandle callback = 0;
};
thread_local ThreadState t_state;

double number_of(const c10::IValue& value) {
  if (value.isDouble()) return value.toDouble();
  if (value.isInt()) return static_cast<double>(value.toInt());
  if (value.isBool()) return value.toBool() ? 1.0 : 0.0;
  return 0.0;
}

void note_writes(MemoryLog& log, const OperatorInfo& info, c10::ArrayRef<const c10::IValue> inputs) {
  constexpr std::size_t kLastBit = 31;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (((info.written >> std::min(i, kLastBit)) & 1U) == 0) continue;
    if (inputs[i].isTensor()) {
      log.note_write(*inputs[i].toTensor().unsafeGetTensorImpl());
    } else if (inputs[i].isTensorList()) {
      for (const at::Tensor& tensor : inputs[i].toTensorVector()) log.note_write(*tensor.unsafeGetTensorImpl());
    }
  }
}

/// Casts keep the memory order unless they are given another one.
bool keeps_order(const c10::IValue& memory_format) {
  return memory_format.isNone() || memory_format.toMemoryFormat() == c10::MemoryFormat::Preserve;
}

void note_cast(MemoryLog& log, const at::RecordFunction& function) {
  constexpr std::size_t kMemoryFormat = 6;
  const auto inputs = function.inputs();
  const bool has_node = function.seqNr() >= 0 && inputs[0].isTensor() && inputs[0].toTensor().requires_grad();
  if (has_node && keeps_order(inputs[kMemoryFormat])) {
    log.note_cast(inputs[0].toTensor(), static_cast<std::uint64_t>(function.seqNr()));
  }
}

/// Records what the operator is about to do to memory. Writes inside another operator of torch's concern memory of its
/// own.
void note_memory(ThreadState& state, const OperatorInfo& info, const at::RecordFunction& function) {
  static const OperatorInfo* const cast = &cast_operator();
  if (&info == cast) note_cast(state.log, function);
  if (info.written != 0 && state.torch_depth == 0) note_writes(state.log, info, function.inputs());
  if (info.is_opaque) state.log.note_unknown_write();
  if (info.is_torch) ++state.torch_depth;
}

/// Finds the nodes of functions in `inputs`: a function's result is first seen when an operator takes it.
void find_nodes(ThreadState& state, c10::ArrayRef<const c10::IValue> inputs) {
  for (const c10::IValue& input : inputs) {
    const NodePtr node = input.isTensor() ? input.toTensor().grad_fn() : nullptr;
    if (!node) continue;
    const auto others = std::ranges::partition(
        state.without_node, [&](const auto& witness) { return witness->node == node->sequence_nr(); });
    Witnesses found(state.without_node.begin(), others.begin());
    state.without_node.erase(state.without_node.begin(), others.begin());
    if (!found.empty()) found[0]->guard->watch(*node, found);
  }
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  ThreadState& state = t_state;
  if (state.depth == state.frames.size()) state.frames.emplace_back();
  Frame& frame = state.frames[state.depth++];
  frame.info = &unknown_operator();  // until it is known: on_end() is called even if this throws
  frame.count = 0;
  const auto inputs = function.inputs();
  frame.info = &operator_info(function.name(), function.overload_name());
  frame.count = static_cast<int>(std::min<std::size_t>(inputs.size(), kMaxArguments));
  frame.other_saves = 0;
  frame.has_saved = false;
  frame.late.reset();
  frame.absent = 0;
  for (int i = 0; i < frame.count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool is_tensor = inputs[at].isTensor();
    frame.tensors[at] = is_tensor ? inputs[at].toTensor().unsafeGetTensorImpl() : nullptr;
    frame.numbers[at] = is_tensor ? 0.0 : number_of(inputs[at]);
    const bool is_empty = inputs[at].isNone() || (inputs[at].isIntList() && inputs[at].toIntList().empty());
    if (is_empty) frame.absent |= 1U << at;
  }
  note_memory(state, *frame.info, function);
  if (!state.without_node.empty()) find_nodes(state, inputs);
  return nullptr;
}

/// Returns the backward node of an operator with these results; null if there is none.
NodePtr node_of(const std::vector<c10::IValue>& results) {
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

void hand_over_witnesses(ThreadState& state, Frame& frame, const at::RecordFunction& function) {
  Witnesses witnesses = std::exchange(frame.witnesses, {});
  if (const auto node = node_of(function.outputs())) {
    witnesses[0]->guard->watch(*node, witnesses);
  } else {
    std::ranges::move(witnesses, std::back_inserter(state.without_node));
  }
}

/// Settles late saves. If that fails, the remaining tensors are kept as they are.
void settle(Frame& frame) {
  try {
    frame.late->settle();
  } catch (const std::exception& error) {
    TORCH_WARN("actzip: what ", frame.info->name, " has saved is kept as it is: ", error.what());
  }
  frame.late.reset();
}

void on_end(const at::RecordFunction& function, at::ObserverContext* /*context*/) {
  ThreadState& state = t_state;
  if (state.depth == 0) return;
  if (state.frames[state.depth - 1].late) settle(state.frames[state.depth - 1]);
  Frame& frame = state.frames[--state.depth];
  if (frame.info->is_opaque) state.log.note_unknown_write();
  if (frame.info->is_torch) --state.torch_depth;
  if (!frame.tried.empty()) hand_over_tried(frame, function);
  if (!frame.witnesses.empty()) hand_over_witnesses(state, frame, function);
  frame.attention.reset();
  frame.recurrent.reset();
}

/// Prefixes of operators that the policy must distinguish from others of their kind.
constexpr const char* kDropout = "dropout.";  ///< a dropout's product with its mask
constexpr const char* kSoftmax = "softmax.";  ///< the operand of a batched product next to a softmax: attention's v

bool is_dropout_product(const Frame& frame, const Frame* parent) {
  const auto* outer = parent != nullptr ? parent->info->row : nullptr;
  return outer != nullptr && outer->has_dropout && frame.info->row != nullptr &&
         frame.info->use_of("other") == Use::factor;
}

/// Whether `slot` is one of the two factors of a batched product.
bool is_batched_factor(const Frame& frame, SlotCode slot) {
  const int first = frame.info->row != nullptr ? frame.info->row->first_factor : -1;
  return first >= 0 && first + 1 < frame.count && slot.value >= first && slot.value <= first + 1;
}

bool is_beside_softmax(const Frame& frame, SlotCode slot) {
  if (!is_batched_factor(frame, slot)) return false;
  const int first = frame.info->row->first_factor;
  const at::Tensor partner = tensor_at(frame, slot.value == first ? first + 1 : first);
  return partner.defined() && is_softmax_result(partner);
}

/// Notes that a factor of a batched product is a softmax's result. Its rows are those of the softmax unless it was
/// transposed; then they do not follow each other in memory, and nobody asks for them.
void note_probability(const at::Tensor& tensor, const Frame& frame, SlotCode slot, OperatorFacts& facts) {
  facts.is_probability = is_batched_factor(frame, slot) && is_softmax_result(tensor);
  const bool is_sized = has_plain_sizes(*tensor.unsafeGetTensorImpl()) && tensor.dim() > 0;
  if (facts.is_probability && is_sized) facts.row_elems = tensor.size(-1);
}

/// Whether `tensor` is a result of the operator that runs now: its node was the last to get a number.
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
  if (frame.info == &checkpoint_operator()) return {0};
  const auto end = frame.tensors.begin() + frame.count;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const auto found = std::find(frame.tensors.begin(), end, impl);
  if (found != end) return {static_cast<int>(found - frame.tensors.begin())};
  if (is_own_result(tensor)) return {SlotCode::kResult};
  return {SlotCode::kOther + frame.other_saves++};
}

Saver outside_operators() {
  const bool is_checkpoint = is_checkpoint_saving();
  return {.op = is_checkpoint ? &checkpoint_operator() : &unknown_operator(),
          .slot = is_checkpoint ? SlotCode{0} : SlotCode{},
          .facts = {}};
}

OperatorFacts facts_of(const OperatorInfo& info, SlotCode slot, const Frame& frame, const Frame* parent) {
  OperatorFacts facts;
  if (info.row != nullptr && info.row->facts != nullptr) info.row->facts(frame, parent, slot, facts);
  return facts;
}

/// `open` begins or resumes a step.
bool listen(const std::shared_ptr<Listener>& session, bool (Listener::*open)()) {
  auto& listeners = t_state.listeners;
  const bool is_new = std::ranges::find(listeners, session) == listeners.end();
  listeners.push_back(session);
  bool has_begun = false;
  try {
    const bool needs_modules = is_new && ((*session).*open)();
    has_begun = is_new;
    if (listeners.size() == 1) {
      t_state.callback = at::addThreadLocalCallback(at::RecordFunctionCallback(on_start, on_end)
                                                        .scopes({at::RecordScope::FUNCTION})
                                                        .needsInputs(true)
                                                        .needsOutputs(session->follows_nodes()));
    }
    return needs_modules;
  } catch (...) {
    listeners.pop_back();
    if (has_begun) session->end_step();
    throw;
  }
}

}  // namespace

at::Tensor tensor_at(const Frame& frame, int position) {
  auto* impl = const_cast<c10::TensorImpl*>(frame.tensors[static_cast<std::size_t>(position)]);
  using Pointer = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  return impl == nullptr ? at::Tensor() : at::Tensor(Pointer::reclaim_copy(impl));
}

bool module_runs_again() { return t_state.modules_run_again > 0; }
ModuleRunsAgain::ModuleRunsAgain() noexcept { ++t_state.modules_run_again; }
ModuleRunsAgain::~ModuleRunsAgain() { --t_state.modules_run_again; }

bool start_listening(const std::shared_ptr<Listener>& session) { return listen(session, &Listener::begin_step); }
bool resume_listening(const std::shared_ptr<Listener>& session) { return listen(session, &Listener::resume_step); }

void stop_listening(const Listener& session) {
  auto& listeners = t_state.listeners;
  const auto found = std::find_if(listeners.rbegin(), listeners.rend(),
                                  [&](const auto& listener) { return listener.get() == &session; });
  if (found == listeners.rend()) {
    throw Error(ErrorCode::invalid_scope, "a session that is not entered on this thread cannot be left on it");
  }
  const std::shared_ptr<Listener> own = std::move(*found);
  listeners.erase(std::prev(found.base()));
  if (listeners.empty()) {
    at::removeCallback(t_state.callback);
    t_state.log.clear();
    t_state.without_node.clear();
  }
  if (is_listening(session)) return;
  std::erase_if(t_state.modules, [&](const auto& entered) { return entered.session == &session; });
  own->end_step();
}

bool is_listening(const Listener& session) {
  return std::ranges::any_of(t_state.listeners, [&](const auto& listener) { return listener.get() == &session; });
}

MemoryLog* memory_log() { return t_state.listeners.empty() ? nullptr : &t_state.log; }

std::uint64_t memory_version(const at::Tensor& tensor) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  const std::uint64_t counter = tensor.is_inference() ? 0 : impl->version_counter().current_version();
  const MemoryLog* const log = memory_log();
  return counter << 32U | (log != nullptr && tensor.has_storage() ? log->writes(tensor) : 0U);
}

Unheard::Unheard() {
  if (t_state.listeners.empty() || at::hasGlobalCallbacks()) return;
  if (at::get_record_function_tls_().sorted_tls_callbacks_.size() == 1) guard_.emplace(false);
}

Saver current_saver(const at::Tensor& tensor, const ParameterRegistry& parameters) {
  ThreadState& state = t_state;
  if (state.depth == 0) return outside_operators();
  Frame& frame = state.frames[state.depth - 1];
  const Frame* parent = state.depth > 1 ? &state.frames[state.depth - 2] : nullptr;
  const bool is_first = !std::exchange(frame.has_saved, true);
  if (is_first) {
    if (is_dropout_product(frame, parent)) frame.info = &prefixed(kDropout, *frame.info);
    frame.parameter = first_parameter(frame, parameters);
  }
  const SlotCode slot = slot_of(tensor, frame);
  const OperatorInfo* info = is_beside_softmax(frame, slot) ? &prefixed(kSoftmax, *frame.info) : frame.info;
  OperatorFacts facts = facts_of(*info, slot, frame, parent);
  note_probability(tensor, frame, slot, facts);
  return {info, slot, frame.parameter, facts, &frame, is_first};
}

void note_tried(const TriedSave& save, const std::shared_ptr<NoiseStream>& stream) {
  ThreadState& state = t_state;
  if (state.depth == 0) return;
  Frame& frame = state.frames[state.depth - 1];
  frame.tried.push_back(save);
  frame.stream = stream;
}

void note_witness(const std::shared_ptr<Witness>& witness) {
  ThreadState& state = t_state;
  auto& witnesses = state.depth == 0 ? state.without_node : state.frames[state.depth - 1].witnesses;
  witnesses.push_back(witness);
}

std::string slot_name(const OperatorInfo& op, SlotCode slot) {
  if (slot.value == SlotCode::kResult) return "result";
  if (slot.value >= SlotCode::kOther) return "aux" + std::to_string(slot.value - SlotCode::kOther);
  const auto at = static_cast<std::size_t>(slot.value);
  return at < op.arguments.size() ? op.arguments[at] : "argument" + std::to_string(at);
}

const std::string* current_module(const Listener& session) {
  const auto& modules = t_state.modules;
  const auto found =
      std::find_if(modules.rbegin(), modules.rend(), [&](const auto& entered) { return entered.session == &session; });
  return found == modules.rend() ? nullptr : found->path;
}

void enter_module(const Listener& session, const std::string* path) {
  if (is_listening(session)) t_state.modules.push_back({&session, path});
}

void leave_module(const Listener& session, const std::string* path) {
  auto& modules = t_state.modules;
  const auto found = std::find(modules.rbegin(), modules.rend(), ThreadState::Entered{&session, path});
  if (found != modules.rend()) modules.erase(std::prev(found.base()), modules.end());
}

}  // namespace actzip::torch
