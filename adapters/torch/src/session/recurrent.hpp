// A recurrent layer that runs again in backward. Its workspace holds all gates of all time steps and is many times
// larger than its input. Computed again from the same input, it is the same to the last bit.
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

/// One call of oneDNN's layer, which takes the input first and returns result, last states and workspace.
class RecurrentCall final : public RunsAgain {
 public:
  static constexpr int kOutputs = 4;
  /// The parts that it saves: an output, by its number; its input; or another argument.
  static constexpr int kInput = kOutputs;
  static constexpr int kArgument = kOutputs + 1;

  /// Returns the call of `frame`; null if it is no such layer or cannot run again.
  static std::shared_ptr<RecurrentCall> of(const Frame& frame);

  /// `arguments` has an empty value in place of the input.
  RecurrentCall(const c10::OperatorHandle& op, ::torch::jit::Stack arguments)
      : op_(op), arguments_(std::move(arguments)) {}

  /// Returns which part it saves now. Outputs are saved in their order.
  [[nodiscard]] int next_part(SlotCode slot);

  /// Whether `part` is the input, which is kept as it is so that outputs can be computed, or an output that can be
  /// computed.
  [[nodiscard]] bool can_run(int part) const { return part == kInput || (part < kOutputs && input_.has_value()); }

  /// Records how `part` was kept. The outputs can be computed only if the input is kept exactly.
  void note_kept(int part, const Packed& packed);

  void note_restored(int /*part*/, const at::Tensor& /*tensor*/) override {}

  /// Returns an output. Backward asks for all of them, but the layer runs once.
  [[nodiscard]] at::Tensor compute(int part) override;

 private:
  void run();

  const c10::OperatorHandle op_;
  const ::torch::jit::Stack arguments_;
  std::optional<Packed> input_;  ///< set if it is kept exactly
  int saved_outputs_ = 0;
  std::array<bool, kOutputs> is_computed_{};  ///< not kept
  std::mutex mutex_;                          ///< guards what follows
  std::array<at::Tensor, kOutputs> outputs_;
};

}  // namespace actzip::torch
