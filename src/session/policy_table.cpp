// The default policy: one row for each use of a saved tensor. docs/policy.md explains the choices.
#include <array>

#include "actzip/policy.hpp"

namespace actzip {

namespace {

constexpr Rotated kTwoBits{.bits = Bits(2)};
constexpr Rotated kThreeBits{.bits = Bits(3)};
constexpr Rotated kFourBits{.bits = Bits(4)};
constexpr Affine kFourBitsBounded{.bits = Bits(4)};
// Unbiased, and 0 stays 0. Rounding to nearest would turn all small probabilities beside a large one into 0, and with
// them most of the gradient where one key of attention takes most of each row.
constexpr Affine kProbability{.bits = Bits(8)};
constexpr Affine kEightBitsDithered{.bits = Bits(8), .rounding = Rounding::dithered};
// Where a probability is 1, its logarithm is the greatest of its group, which f32 statistics make exact. Below the
// floor, a logarithm stands for a probability that is 0 for all that a gradient can see; and masked logits, which are
// -inf, do not stretch their group.
constexpr Affine kLogarithm{.bits = Bits(8), .rounding = Rounding::nearest, .stats = StatsType::f32, .floor = -32.0F};
constexpr Cast kHalf{.to = DType::bf16};

// constinit: the table is data; nothing runs before main().
constinit const std::array<PolicyRow, kUses> kRows = {
    // Few bits would suffice for most of what these save. But an additive mask, a log-sum-exp or a divisor in few bits
    // gives a gradient that points elsewhere, or NaN, and nothing distinguishes them.
    PolicyRow{Use::unknown, Treatment::not_known, {}, "an operator that actzip does not know"},
    PolicyRow{Use::foreign, Treatment::not_known, {}, "only the author of this function knows what it is saved for"},
    PolicyRow{Use::sign, Treatment::sign, {}, "its gradient asks for the sign alone"},
    PolicyRow{Use::interval, Treatment::interval, {}, "its gradient asks for one bit: inside its limits or not"},
    PolicyRow{Use::dropout_mask, Treatment::scaled_mask, {}, "a dropout mask: 0 or one factor"},
    PolicyRow{Use::shape, Treatment::shape_only, {}, "its gradient asks for the shape alone"},
    PolicyRow{Use::pool_index, Treatment::index, {}, "positions in the input's window"},
    PolicyRow{Use::index, Treatment::index, {}, "positions along one dimension"},
    PolicyRow{Use::attention_query, Treatment::codec, kFourBits, "passes through an exponential in backward"},
    PolicyRow{Use::attention_key, Treatment::codec, kFourBits, "passes through an exponential in backward"},
    // Backward divides the exponentials of these logits by the sum of the true ones. With 4 bits, errors of logits
    // become factors.
    PolicyRow{Use::attention_operand, Treatment::codec, kEightBitsDithered, "of attention that cannot run again"},
    // It enters linearly, but the gradients of query and key are differences between its rows, which are small.
    PolicyRow{Use::attention_value, Treatment::codec, kThreeBits, "v of attention: enters linearly"},
    // Backward subtracts the product of gradient and result from the product of gradient and every value. If the result
    // is computed from the same rounded values, their noise cancels there, and with it most of the noise in attention's
    // gradient.
    PolicyRow{Use::attention_result, Treatment::again_or_codec, kTwoBits, "enters linearly"},
    PolicyRow{Use::attention_statistics, Treatment::again_or_exactly, {}, "statistics of attention are kept exactly"},
    // Masks are padded to align their rows: a kernel fails on an unaligned copy.
    PolicyRow{Use::attention_mask, Treatment::exactly, {}, "masks of attention are kept exactly"},
    PolicyRow{Use::batched_operand, Treatment::codec, kFourBits, "may be q and k of attention"},
    PolicyRow{Use::vector_operand, Treatment::codec_if_large, kTwoBits, "a vector that enters linearly"},
    // More than for a convolution: the gradient of the weight sums over rows, not over rows and pixels, and early in
    // training most of a transformer's error comes from here.
    PolicyRow{Use::linear_input, Treatment::codec_by_width, kThreeBits, "enters linearly"},
    PolicyRow{Use::linear_weight, Treatment::codec_by_width, kThreeBits, "enters linearly"},
    PolicyRow{Use::convolution_input, Treatment::codec_by_map, kTwoBits, "enters linearly"},
    PolicyRow{Use::convolution_weight, Treatment::codec_by_map, kTwoBits, "enters linearly"},
    PolicyRow{Use::batch_norm_input, Treatment::codec_by_map, kTwoBits, "input of a batch norm"},
    PolicyRow{Use::row_norm_input, Treatment::codec_by_row, kTwoBits, "input of a norm"},
    PolicyRow{Use::norm_statistics, Treatment::as_is, {}, "statistics and weights of a norm are kept exactly"},
    PolicyRow{Use::recurrent_input, Treatment::for_again, kFourBits, "input of a recurrent layer"},
    PolicyRow{Use::recurrent_state,
              Treatment::again_or_as_is,
              {},
              "states and workspace of a recurrent layer are kept exactly"},
    PolicyRow{Use::gelu_input, Treatment::pointwise, kThreeBits, "its slope is taken there"},
    PolicyRow{Use::slope_input, Treatment::pointwise, kFourBits, "its slope is taken there"},
    PolicyRow{Use::factor, Treatment::pointwise, kThreeBits, "a factor of what passes through"},
    PolicyRow{Use::power_base, Treatment::codec_if_whole, kTwoBits, "smooth and pointwise"},
    PolicyRow{Use::power_exponent, Treatment::as_is, {}, "a power with an exponent for each element"},
    // affine, because most values may lie at the ends of their range, where the code must be exact.
    PolicyRow{Use::bounded_result, Treatment::codec, kFourBitsBounded, "a curve between two limits"},
    PolicyRow{Use::softmax_result, Treatment::codec, kProbability, "result of an exponential"},
    PolicyRow{Use::log_probabilities, Treatment::codec_if_large, kLogarithm, "logarithms of probabilities"},
    // The gradient is exp(x - result): an error of x is a factor, the larger the further both are from 0, and factors
    // of steps that follow each other multiply.
    PolicyRow{Use::log_sum, Treatment::as_is, {}, "its gradient is the exponential of a difference"},
    // bf16 rather than 8 bits: the error of a divisor must be small relative to itself, not to its neighbours.
    PolicyRow{Use::quotient, Treatment::codec_if_large, kHalf, "its gradient is a quotient"},
    // Dithered: rounding to nearest would always turn a value that is small in its group into 0, and no step averages
    // that out.
    PolicyRow{Use::exponential_result, Treatment::codec_if_large, kEightBitsDithered,
              "result of an exponential, a root or a norm"},
    PolicyRow{Use::loss_operand, Treatment::codec_if_large, kHalf, "a loss compares it with its target"},
    PolicyRow{Use::comparison, Treatment::as_is, {}, "its gradient compares values"},
    // Near a pole, or at the end of a domain, no rounding error is small.
    PolicyRow{Use::pole, Treatment::as_is, {}, "its gradient has a pole"},
    PolicyRow{Use::solver, Treatment::as_is, {}, "its gradient solves with it"},
    PolicyRow{Use::position, Treatment::as_is, {}, "positions in an image"},
    // All that is computed again from it has its error. Nothing averages that out.
    PolicyRow{Use::checkpoint_input, Treatment::not_known, {}, "a checkpoint runs again from it"},
};

}  // namespace

std::span<const PolicyRow> policy_table() { return kRows; }

}  // namespace actzip
