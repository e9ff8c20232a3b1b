// What a gradient needs of a saved tensor: the core's vocabulary for operators.
//
// An adapter's operator table maps each operator and slot of its framework to a use. Policy, levels, plan and report
// know only uses, so one row of the policy serves every framework.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace actzip {

enum class Use : std::uint8_t {
  unknown,               ///< an operator of the framework that the adapter's table does not know
  foreign,               ///< saved by a function from outside the framework; only its author knows what for
  sign,                  ///< whether a value is above 0
  interval,              ///< whether a value lies inside the operator's own limits
  dropout_mask,          ///< 0 or one factor
  shape,                 ///< the shape of its input; no values
  pool_index,            ///< where in the input the maximum lies
  index,                 ///< positions along one dimension
  attention_query,       ///< passes through an exponential
  attention_key,         ///< the same
  attention_operand,     ///< query, key or value, if the sums of exponentials are kept: the operator cannot run again
  attention_value,       ///< enters linearly, weighted by probabilities
  attention_result,      ///< can be computed again from query, key and value
  attention_statistics,  ///< the same, for logarithms of the sums of exponentials and states of generators
  attention_mask,        ///< what is added to the logits
  batched_operand,       ///< of a batched matrix product: perhaps a query or key
  vector_operand,        ///< of a matrix-vector or dot product
  linear_input,          ///< of a linear layer or a matrix product
  linear_weight,         ///< its other factor
  convolution_input,
  convolution_weight,
  batch_norm_input,  ///< statistics are taken over samples and positions of each channel
  row_norm_input,    ///< statistics are taken over rows, or over groups of channels of one sample
  norm_statistics,   ///< statistics and weights of a norm
  recurrent_input,
  recurrent_state,     ///< states and workspace of a recurrent layer
  gelu_input,          ///< the slope is taken there
  slope_input,         ///< the same for SiLU and its relatives, whose slopes are more sensitive to errors
  factor,              ///< of an elementwise product
  power_base,          ///< of a power with one exponent for all elements
  power_exponent,      ///< exponents, or the base, of a power with an exponent for each element
  bounded_result,      ///< result of a curve between two limits, such as tanh
  softmax_result,      ///< probabilities
  log_probabilities,   ///< logarithms of probabilities
  log_sum,             ///< operand or result of a logarithm of a sum of exponentials
  quotient,            ///< the gradient divides by it
  exponential_result,  ///< result of an exponential, a root, a reciprocal or a norm
  loss_operand,        ///< compared with a target by a loss
  comparison,          ///< the gradient compares it with another value
  pole,                ///< the gradient has a pole, or the operator's domain ends
  solver,              ///< the gradient solves a linear system with it
  position,            ///< a position in an image
  checkpoint_input,    ///< a checkpoint runs its function again from it in backward
};

inline constexpr int kUses = static_cast<int>(Use::checkpoint_input) + 1;

/// The name in reports and rules: "linear_input".
std::string_view to_string(Use use) noexcept;

/// Returns nothing if the text is not the name of a use.
std::optional<Use> parse_use(std::string_view text) noexcept;

/// Whether the gradient is a product with the tensor, so that errors of its elements average out.
[[nodiscard]] bool enters_linearly(Use use) noexcept;

/// All uses, in the order of the enum.
std::array<Use, kUses> all_uses() noexcept;

}  // namespace actzip
