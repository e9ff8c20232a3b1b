// What a gradient needs of a saved tensor: the core's vocabulary.
//
// An adapter's operator table says which operator and slot of its framework has which use. Policy, levels, plan and
// report know uses alone, so that a row of the policy serves every framework.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace actzip {

enum class Use : std::uint8_t {
  unknown,               ///< an operator of the framework that its adapter's table does not know
  foreign,               ///< saved by a function of somebody else's, who alone knows what for
  sign,                  ///< above 0 or not
  interval,              ///< inside the operator's own limits or not
  dropout_mask,          ///< 0 or one factor
  shape,                 ///< of its input; no value
  pool_index,            ///< where in the input a maximum lies
  index,                 ///< positions along one dimension
  attention_query,       ///< passes through an exponential
  attention_key,         ///< the same
  attention_operand,     ///< either, where sums of exponentials are kept: probabilities no longer sum to 1
  attention_value,       ///< enters linearly, weighted by probabilities
  attention_result,      ///< can be computed again from the three before
  attention_statistics,  ///< the same: logarithms of the sums of exponentials, states of generators
  attention_mask,        ///< what is added to its logits
  batched_operand,       ///< of a product of batches of matrices: perhaps of a query and a key
  vector_operand,        ///< of a product with a vector
  linear_input,          ///< of a linear layer or a product of matrices
  linear_weight,         ///< the other factor
  convolution_input,
  convolution_weight,
  batch_norm_input,  ///< statistics are taken over samples and positions of each channel
  row_norm_input,    ///< over rows, or groups of channels of one sample
  norm_statistics,   ///< and weights
  recurrent_input,
  recurrent_state,     ///< and workspace
  gelu_input,          ///< its slope is taken there
  slope_input,         ///< the same for SiLU and its relatives, whose slopes feel an error more
  factor,              ///< of a product of elements
  power_base,          ///< with one exponent for all
  power_exponent,      ///< or a base with an exponent for each element
  bounded_result,      ///< of a curve between two limits, such as tanh
  softmax_result,      ///< probabilities
  log_probabilities,   ///< their logarithms
  log_sum,             ///< a logarithm that may be -inf
  quotient,            ///< the gradient divides by it
  exponential_result,  ///< or a root's, a reciprocal's, a norm's
  loss_operand,        ///< compared with its target
  comparison,          ///< the gradient asks which element was chosen
  pole,                ///< the gradient has a pole, or a domain that ends
  solver,              ///< the gradient solves with it
  position,            ///< in an image
};

inline constexpr int kUses = static_cast<int>(Use::position) + 1;

/// "linear_input": as reports give it, and rules match it.
std::string_view to_string(Use use) noexcept;

/// None for a text that is no use.
std::optional<Use> parse_use(std::string_view text) noexcept;

/// All of them, in the order above.
std::array<Use, kUses> all_uses() noexcept;

}  // namespace actzip
