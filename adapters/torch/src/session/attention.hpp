// Fused attention that runs again in backward. Its gradient multiplies each value by the gradient of the result, and
// subtracts the same product of the result itself. Noise in the kept values cancels there only if the result was
// computed from the same noisy values. So result and statistics are not kept, but computed from what was kept of query,
// key and value.
#pragma once

#include <ATen/core/Generator.h>
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

/// The state of a device's default generator, so that a dropout can draw the same numbers again.
struct RandomPlace {
  at::Generator generator;
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;

  /// Returns the current state. Requires that the device's stream is not being captured.
  static RandomPlace now(c10::Device device);
};

/// One call of an operator whose first arguments are query, key and value, and whose first outputs are result and
/// statistics.
class AttentionCall final : public RunsAgain {
 public:
  /// The tensors that the operator saves.
  enum Part : int { query, key, value, result, statistics };

  /// Returns the call of `frame`, which must not have drawn random numbers yet; null if it is no attention or cannot
  /// run again. With a dropout it cannot on the CPU or while being captured into a graph: it would draw other numbers.
  static std::shared_ptr<AttentionCall> of(const Frame& frame);

  /// Whether this is a fused operator, which saves sums of exponentials beside query, key and value.
  static bool is_attention(const OperatorInfo& info) { return info.use_of("query") == Use::attention_query; }

  static constexpr int kOperands = 3;
  using Operands = std::array<std::size_t, kOperands>;

  /// `operands` has, for each operand, the index of the first operand that is the same tensor, mostly its own.
  /// `arguments` has empty values in place of the operands.
  AttentionCall(const c10::OperatorHandle& op, const Operands& operands, ::torch::jit::Stack arguments,
                std::optional<RandomPlace> random)
      : op_(op), operands_(operands), arguments_(std::move(arguments)), random_(std::move(random)) {}

  /// Returns which part the operator saves in `slot`; nothing if it is none of the above.
  static std::optional<Part> part_of(SlotCode slot, const at::Tensor& tensor);

  /// Whether `part` is an output and all operands for computing it were kept.
  [[nodiscard]] bool can_compute(Part part) const;

  /// Records how `part` was kept: an operand to compute from, or an output that may have to be computed.
  void note_kept(Part part, const Packed& packed);

  /// Remembers a restored operand. The outputs are then computed from the same values, with the same noise if a trial
  /// adds some, and the operand need not be restored again.
  void note_restored(int part, const at::Tensor& tensor) override;

  /// Returns the result or the statistics. Backward asks for both, but the operator runs once.
  [[nodiscard]] at::Tensor compute(int part) override;

 private:
  static constexpr int kOutputs = 2;
  void run();
  void draw_again(::torch::jit::Stack& stack) const;

  const c10::OperatorHandle op_;
  const Operands operands_;
  const ::torch::jit::Stack arguments_;
  const std::optional<RandomPlace> random_;  ///< before the call drew; set if it has a dropout
  std::optional<std::uint64_t> drawn_;       ///< how far the call advanced the generator
  std::array<std::optional<Packed>, kOperands> kept_;
  std::array<bool, kOutputs> is_computed_{};  ///< not kept
  std::mutex mutex_;                          ///< guards what follows: a node's saved tensors may be read while it runs
  std::array<at::Tensor, kOperands> restored_;
  std::array<at::Tensor, kOutputs> outputs_;
};

}  // namespace actzip::torch
