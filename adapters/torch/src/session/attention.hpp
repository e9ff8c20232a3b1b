// Fused attention that runs again in backward. There the product of the result and its gradient is subtracted from that
// of every value: noise in the values cancels only if the result is made of the same values. So result and statistics
// are not kept, but computed from what was kept of query, key and value.
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

/// Where a device's default generator stands, so that a dropout draws the same numbers again.
struct RandomPlace {
  at::Generator generator;
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;

  /// Not while its stream is captured.
  static RandomPlace now(c10::Device device);
};

/// One call of an operator that takes query, key and value first, and gives result and statistics first.
class AttentionCall final : public RunsAgain {
 public:
  /// What it saves and may be asked for again.
  enum Part : int { query, key, value, result, statistics };

  /// The call of `frame`, which has not drawn random numbers yet; null if it is none, or cannot run again: on the CPU
  /// or while it is captured into a graph a dropout would draw other numbers.
  static std::shared_ptr<AttentionCall> of(const Frame& frame);

  static constexpr int kOperands = 3;
  using Operands = std::array<std::size_t, kOperands>;

  /// `operands` says for each which was the first to be the same tensor, mostly itself; `arguments` has nothing in
  /// their place.
  AttentionCall(const c10::OperatorHandle& op, const Operands& operands, ::torch::jit::Stack arguments,
                std::optional<RandomPlace> random)
      : op_(op), operands_(operands), arguments_(std::move(arguments)), random_(std::move(random)) {}

  /// What the operator saves in that slot; none if it is nothing of the above.
  static std::optional<Part> part_of(SlotCode slot, const at::Tensor& tensor);

  /// Whether that part is an output, and there are operands for it.
  [[nodiscard]] bool can_compute(Part part) const;

  /// That part is kept so. It is an operand, or may have to be computed.
  void note_kept(Part part, const Packed& packed);

  /// An operand is not restored again for the result, nor drawn again if noise is tried in it.
  void note_restored(int part, const at::Tensor& tensor) override;

  /// The result or the statistics. Backward asks for both, and the operator runs once.
  [[nodiscard]] at::Tensor compute(int part) override;

 private:
  static constexpr int kOutputs = 2;
  void run();
  void draw_again(::torch::jit::Stack& stack) const;

  const c10::OperatorHandle op_;
  const Operands operands_;
  const ::torch::jit::Stack arguments_;
  const std::optional<RandomPlace> random_;  ///< before it drew, if it has a dropout
  std::optional<std::uint64_t> drawn_;       ///< how far the generator had come when the result was there
  std::array<std::optional<Packed>, kOperands> kept_;
  std::array<bool, kOutputs> is_computed_{};  ///< nothing of it is kept
  std::mutex mutex_;  ///< of what follows: somebody may look at what a node has saved while it runs
  std::array<at::Tensor, kOperands> restored_;
  std::array<at::Tensor, kOutputs> outputs_;
};

}  // namespace actzip::torch
