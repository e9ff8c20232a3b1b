// A recurrent layer that runs again in backward. Its workspace is many times larger than its input, and is all gates of
// all steps: computed again from the same input, it is the same to the last bit.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <array>
#include <memory>
#include <mutex>
#include <optional>

#include "observe/running_operators.hpp"
#include "session/packed.hpp"

namespace actzip::torch {

/// One call of oneDNN's layer. It takes the input first, and gives result, last states and workspace.
class RecurrentCall final : public RunsAgain {
 public:
  static constexpr int kOutputs = 4;
  /// What it saves: an output by its number, its input, or another argument.
  static constexpr int kInput = kOutputs;
  static constexpr int kArgument = kOutputs + 1;

  /// The call of `frame`; null if it is none that can run again.
  static std::shared_ptr<RecurrentCall> of(const Frame& frame);

  /// `arguments` has nothing in place of the input.
  RecurrentCall(const c10::OperatorHandle& op, ::torch::jit::Stack arguments)
      : op_(op), arguments_(std::move(arguments)) {}

  /// What it saves next; outputs come in their order.
  [[nodiscard]] int next_part(SlotCode slot);

  /// Whether that part is to be kept as it is so that others can be computed, or can be computed itself.
  [[nodiscard]] bool can_run(int part) const { return part == kInput || (part < kOutputs && input_.has_value()); }

  /// That part was kept so. Only from the input itself the same outputs come again.
  void note_kept(int part, const Packed& packed);

  void note_restored(int /*part*/, const at::Tensor& /*tensor*/) override {}

  /// Backward asks for all outputs, and the layer runs once.
  [[nodiscard]] at::Tensor compute(int part) override;

 private:
  void run();

  const c10::OperatorHandle op_;
  const ::torch::jit::Stack arguments_;
  std::optional<Packed> input_;  ///< if it is kept exactly
  int saved_outputs_ = 0;
  std::array<bool, kOutputs> is_computed_{};  ///< nothing of it is kept
  std::mutex mutex_;                          ///< of what follows
  std::array<at::Tensor, kOutputs> outputs_;
};

}  // namespace actzip::torch
