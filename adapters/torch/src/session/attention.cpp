#include "session/attention.hpp"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/memory.hpp"

namespace actzip::torch {

namespace {

/// Returns an argument as the frame recorded it; nothing if frames do not record its type. Frames record None as 0. No
/// scale is 0, so 0 in an optional number means None.
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

/// For each operand, the first operand that is the same tensor: a save is attributed to the first argument that
/// matches.
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

/// Requires the generator's lock.
void go_to(at::Generator& generator, std::uint64_t seed, std::uint64_t offset) {
  if (generator.current_seed() != seed) generator.set_current_seed(seed);  // resets more than the offset
  generator.set_offset(offset);
}

/// Moves a generator to another state for a while. Operators take its lock themselves, so other threads may draw
/// meanwhile. leave() detects that and makes sure that the numbers they drew are not drawn again.
class VisitedPlace {
 public:
  explicit VisitedPlace(const RandomPlace& place) : place_(place), generator_(place.generator) {
    const std::lock_guard lock(generator_.mutex());
    seed_ = generator_.current_seed();
    offset_ = generator_.get_offset();
    go_to(generator_, place_.seed, place_.offset);
  }
  ~VisitedPlace() { leave(); }
  VisitedPlace(const VisitedPlace&) = delete;
  VisitedPlace& operator=(const VisitedPlace&) = delete;

  /// Puts the generator back and advances it past what other threads drew. Returns whether exactly `drawn` was drawn.
  bool leave(std::uint64_t drawn = 0) {
    const std::lock_guard lock(generator_.mutex());
    if (std::exchange(has_left_, true)) return false;
    if (generator_.current_seed() != place_.seed) return false;  // another thread has set a seed; it stays
    const std::uint64_t all = generator_.get_offset() - place_.offset;
    go_to(generator_, seed_, offset_ + (all > drawn ? all - drawn : 0));
    return all == drawn;
  }

 private:
  const RandomPlace& place_;
  at::Generator generator_;
  std::uint64_t seed_ = 0;
  std::uint64_t offset_ = 0;
  bool has_left_ = false;
};

}  // namespace

RandomPlace RandomPlace::now(c10::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  return {generator, generator.current_seed(), generator.get_offset()};
}

std::shared_ptr<AttentionCall> AttentionCall::of(const Frame& frame) {
  const OperatorInfo& info = *frame.info;
  const bool runs_again = info.row != nullptr && info.row->runs_again;
  if (!runs_again || !info.handle || !takes_operands_first(info.arguments)) return nullptr;
  if (frame.count != static_cast<int>(info.arguments.size())) return nullptr;
  std::optional<RandomPlace> random;
  if (has_dropout(frame)) {
    const c10::Device device = tensor_at(frame, query).device();
    if (!device.is_cuda() || is_captured(device)) return nullptr;
    random = RandomPlace::now(device);
  }
  const auto& op = info.handle;
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
  // Of the other outputs only the statistics are floating-point; the state of a generator is integer.
  if (slot.value >= SlotCode::kOther && tensor.is_floating_point()) return statistics;
  return std::nullopt;
}

bool AttentionCall::can_compute(Part part) const {
  return part >= kOperands && std::ranges::all_of(operands_, [&](std::size_t i) { return kept_[i].has_value(); });
}

void AttentionCall::note_kept(Part part, const Packed& packed) {
  if (part < kOperands) {
    kept_[part] = packed;
    return;
  }
  is_computed_[static_cast<std::size_t>(part - result)] = packed.is_recomputed();
  if (part == result && random_) {
    const RandomPlace now = RandomPlace::now(random_->generator.device());
    if (now.seed == random_->seed) drawn_ = now.offset - random_->offset;
  }
}

void AttentionCall::note_restored(int part, const at::Tensor& tensor) {
  if (part >= kOperands || is_computed_ == std::array{false, false}) return;
  const std::lock_guard lock(mutex_);
  restored_[static_cast<std::size_t>(part)] = tensor;
}

at::Tensor AttentionCall::compute(int part) {
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
  if (random_) {
    draw_again(stack);
  } else {
    op_.callBoxed(stack);
  }
  for (std::size_t i = 0; i < kOutputs; ++i) {
    if (is_computed_[i]) outputs_[i] = std::move(stack[i]).toTensor();
  }
}

/// Repeats the call until it draws exactly as much as in forward. It draws more if another thread uses the generator at
/// the same time. A mask of other numbers would be a wrong gradient.
void AttentionCall::draw_again(::torch::jit::Stack& stack) const {
  constexpr int kAttempts = 8;
  for (int i = 0; drawn_ && i < kAttempts; ++i) {
    ::torch::jit::Stack attempt = stack;
    VisitedPlace visit(*random_);
    op_.callBoxed(attempt);
    if (!visit.leave(*drawn_)) continue;
    stack = std::move(attempt);
    return;
  }
  TORCH_CHECK(false, "actzip: ", op_.schema().name(),
              " cannot draw its dropout again: another thread draws from the "
              "default generator of ",
              random_->generator.device(),
              " at the same time (allowed: a generator of its own "
              "in that thread, or a rule that keeps the result, such as {\"use:",
              to_string(Use::attention_result), "\": \"rotated:4\"})");
}

}  // namespace actzip::torch
