#include "attention.hpp"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "actzip/backend.hpp"
#include "memory.hpp"

namespace actzip::torch {

namespace {

constexpr std::string_view kFamily = "_scaled_dot_product_";

/// An argument as the frame has noted it; none if it is of a type that frames do not note. They note nothing as 0,
/// which no scale is.
std::optional<c10::IValue> argument_of(const Frame& frame, int position, const c10::TypePtr& type) {
  const double number = frame.numbers[static_cast<std::size_t>(position)];
  switch (type->kind()) {
    case c10::TypeKind::TensorType: return tensor_at(frame, position).tensor_data();
    case c10::TypeKind::FloatType: return number;
    case c10::TypeKind::BoolType: return number != 0.0;
    case c10::TypeKind::OptionalType: break;
    default: return std::nullopt;
  }
  const auto& inner = type->expectRef<c10::OptionalType>().getElementType();
  if (inner->kind() == c10::TypeKind::TensorType) {
    const at::Tensor tensor = tensor_at(frame, position);
    return tensor.defined() ? c10::IValue(tensor.tensor_data()) : c10::IValue();
  }
  if (inner->kind() != c10::TypeKind::FloatType) return std::nullopt;
  return number != 0.0 ? c10::IValue(number) : c10::IValue();
}

/// The first operand that is the same tensor, for each: what it saves is found by the tensor.
AttentionCall::Operands first_of_each(const Frame& frame) {
  AttentionCall::Operands first{};
  for (std::size_t i = 0; i < first.size(); ++i) {
    first[i] = static_cast<std::size_t>(std::ranges::find(frame.tensors, frame.tensors[i]) - frame.tensors.begin());
  }
  return first;
}

bool takes_operands_first(const std::vector<std::string>& names) {
  constexpr std::array<std::string_view, 3> kNames{"query", "key", "value"};
  return names.size() >= kNames.size() && std::equal(kNames.begin(), kNames.end(), names.begin());
}

bool has_dropout(const Frame& frame) {
  const auto& names = frame.info->arguments;
  const auto found = std::ranges::find(names, "dropout_p");
  return found == names.end() || frame.numbers[static_cast<std::size_t>(found - names.begin())] != 0.0;
}

/// While it lives, a generator is at that place; afterwards where it was.
class VisitedPlace {
 public:
  explicit VisitedPlace(const RandomPlace& place) : before_(RandomPlace::now(place.generator.device())) {
    place.go_there();
  }
  ~VisitedPlace() { before_.go_there(); }
  VisitedPlace(const VisitedPlace&) = delete;
  VisitedPlace& operator=(const VisitedPlace&) = delete;

 private:
  RandomPlace before_;
};

}  // namespace

RandomPlace RandomPlace::now(c10::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  return {generator, generator.current_seed(), generator.get_offset()};
}

void RandomPlace::go_there() const {
  at::Generator own = generator;
  const std::lock_guard lock(own.mutex());
  if (own.current_seed() != seed) own.set_current_seed(seed);  // which forgets more than the offset
  own.set_offset(offset);
}

std::shared_ptr<AttentionCall> AttentionCall::of(const Frame& frame) {
  const OperatorInfo& info = *frame.info;
  if (!info.name.starts_with(kFamily) || !takes_operands_first(info.arguments)) return nullptr;
  if (frame.count != static_cast<int>(info.arguments.size())) return nullptr;
  std::optional<RandomPlace> random;
  if (has_dropout(frame)) {
    const c10::Device device = tensor_at(frame, query).device();
    if (!device.is_cuda() || is_capturing(current_stream(device))) return nullptr;
    random = RandomPlace::now(device);
  }
  const auto op = c10::Dispatcher::singleton().findSchema({frame.name, frame.overload ? frame.overload : ""});
  if (!op) return nullptr;
  ::torch::jit::Stack arguments(kOperands);
  for (int i = kOperands; i < frame.count; ++i) {
    auto argument = argument_of(frame, i, op->schema().arguments()[static_cast<std::size_t>(i)].type());
    if (!argument) return nullptr;
    arguments.push_back(*std::move(argument));
  }
  return std::make_shared<AttentionCall>(*op, first_of_each(frame), std::move(arguments), std::move(random));
}

std::optional<AttentionCall::Part> AttentionCall::part_of(SlotCode slot, const at::Tensor& tensor) {
  if (slot.value < kOperands) return static_cast<Part>(slot.value);
  if (slot.value == SlotCode::kResult) return result;
  // Statistics are the only numbers beside it; the state of a generator is integer.
  if (slot.value >= SlotCode::kOther && tensor.is_floating_point()) return statistics;
  return std::nullopt;
}

bool AttentionCall::can_compute(Part part) const {
  return part >= kOperands && std::ranges::all_of(operands_, [&](std::size_t i) { return kept_[i].has_value(); });
}

void AttentionCall::note_kept(Part part, const Packed& packed) {
  if (part < kOperands) {
    kept_[part] = packed;
  } else {
    is_computed_[static_cast<std::size_t>(part - result)] = packed.is_recomputed();
  }
}

void AttentionCall::note_restored(Part part, const at::Tensor& tensor) {
  if (part >= kOperands || is_computed_ == std::array{false, false}) return;
  const std::lock_guard lock(mutex_);
  restored_[part] = tensor;
}

at::Tensor AttentionCall::compute(Part part) {
  const std::lock_guard lock(mutex_);
  at::Tensor& output = outputs_[static_cast<std::size_t>(part - result)];
  if (!output.defined()) run();
  return std::exchange(output, at::Tensor());
}

void AttentionCall::run() {
  const at::NoGradGuard no_grad;
  ::torch::jit::Stack stack = arguments_;
  for (std::size_t i = 0; i < kOperands; ++i) {
    at::Tensor& operand = restored_[operands_[i]];
    if (!operand.defined()) operand = kept_[operands_[i]]->unpack_as_tried();
    stack[i] = operand;
  }
  restored_ = {};
  {
    std::optional<VisitedPlace> visit;
    if (random_) visit.emplace(*random_);
    op_.callBoxed(stack);
  }
  for (std::size_t i = 0; i < kOutputs; ++i) {
    if (is_computed_[i]) outputs_[i] = std::move(stack[i]).toTensor();
  }
}

}  // namespace actzip::torch
