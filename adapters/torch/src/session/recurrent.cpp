#include "session/recurrent.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "session/session_impl.hpp"

namespace actzip::torch {

namespace {

/// Returns an argument as the frame recorded it; nothing if frames do not record its type. Of a list they only record
/// whether it is empty.
std::optional<c10::IValue> value_of(const Frame& frame, int position, const c10::TypePtr& type) {
  const double number = frame.numbers[static_cast<std::size_t>(position)];
  switch (type->kind()) {
    case c10::TypeKind::TensorType: return tensor_at(frame, position).tensor_data();
    case c10::TypeKind::IntType: return static_cast<std::int64_t>(number);
    case c10::TypeKind::BoolType: return number != 0.0;
    case c10::TypeKind::ListType:
      return frame.is_absent(position) ? std::optional(c10::IValue(std::vector<std::int64_t>())) : std::nullopt;
    default: return std::nullopt;
  }
}

}  // namespace

std::shared_ptr<RecurrentCall> RecurrentCall::of(const Frame& frame) {
  const OperatorInfo& info = *frame.info;
  const bool is_layer = info.row != nullptr && info.row->runs_again && info.use_of("input") == Use::recurrent_input;
  if (!is_layer || !info.handle || frame.count != static_cast<int>(info.arguments.size())) return nullptr;
  const auto& schema = info.handle->schema();
  if (schema.returns().size() != kOutputs || info.arguments[0] != "input") return nullptr;
  ::torch::jit::Stack arguments(1);
  for (int i = 1; i < frame.count; ++i) {
    auto argument = value_of(frame, i, schema.arguments()[static_cast<std::size_t>(i)].type());
    if (!argument) return nullptr;
    arguments.push_back(*std::move(argument));
  }
  return std::make_shared<RecurrentCall>(*info.handle, std::move(arguments));
}

int RecurrentCall::next_part(SlotCode slot) {
  if (slot.value == 0) return kInput;
  const bool is_output = slot.value >= SlotCode::kResult && saved_outputs_ < kOutputs;
  return is_output ? saved_outputs_++ : kArgument;
}

void RecurrentCall::note_kept(int part, const Packed& packed) {
  if (part == kInput && packed.is_exact()) input_ = packed.for_another();
  if (part < kOutputs) is_computed_[static_cast<std::size_t>(part)] = packed.is_recomputed();
}

at::Tensor RecurrentCall::compute(int part) {
  const std::lock_guard lock(mutex_);
  at::Tensor& output = outputs_[static_cast<std::size_t>(part)];
  if (!output.defined()) run();
  return std::exchange(output, at::Tensor());
}

void RecurrentCall::run() {
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  const at::AutoGradMode for_workspace(true);  // without gradients the layer computes no workspace
  ::torch::jit::Stack stack = arguments_;
  stack[0] = input_->unpack();
  op_.callBoxed(stack);
  for (std::size_t i = 0; i < kOutputs; ++i) {
    if (is_computed_[i]) outputs_[i] = std::move(stack[i]).toTensor();
  }
}

Packed SessionImpl::pack_recurrent(const std::shared_ptr<RecurrentCall>& call, Saver& saver, const at::Tensor& tensor) {
  const int part = call->next_part(saver.slot);
  saver.facts.recomputable = call->can_run(part);
  Packed packed = pack_for(saver, tensor);
  call->note_kept(part, packed);
  if (packed.is_recomputed()) {
    packed.call_ = call;
    packed.part_ = part;
  }
  return packed;
}

}  // namespace actzip::torch
