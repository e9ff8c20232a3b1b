// The default policy: one row for each thing an operator saves. docs/policy.md explains the choices.
#include <array>

#include "actzip/policy.hpp"
#include "session/operator_names.hpp"

namespace actzip {

namespace {

constexpr Rotated kTwoBits{.bits = Bits(2)};
constexpr Rotated kThreeBits{.bits = Bits(3)};
constexpr Rotated kFourBits{.bits = Bits(4)};
constexpr Affine kFourBitsBounded{.bits = Bits(4)};
constexpr Affine kEightBits{.bits = Bits(8), .rounding = Rounding::nearest};
// Where probability is 1 its logarithm is the greatest of its group, which f32 statistics make exact; below the floor
// it is 0 for all that a gradient can see, and masked logits, which are -inf, do not stretch their group.
constexpr Affine kLogarithm{.bits = Bits(8), .rounding = Rounding::nearest, .stats = StatsType::f32, .floor = -32.0F};
constexpr Cast kHalf{.to = DType::bf16};

// Names of operators that share their rows; those of the layers are in operator_names.hpp.
using session::kBatchNorms;
using session::kConvolutions;
using session::kLinear;
constexpr std::string_view kRowNorms = "native_layer_norm native_group_norm _fused_rms_norm instance_norm";
constexpr std::string_view kFusedAttention =
    "_scaled_dot_product_* _flash_attention_* _efficient_attention_* "
    "_cudnn_attention_*";

constexpr std::string_view kRecurrent = "mkldnn_rnn_layer _cudnn_rnn* miopen_rnn* _thnn_fused_* _lstm_mps";
// Backward looks for the element that was chosen, or which of two is the greater.
constexpr std::string_view kComparing =
    "max min amax amin aminmax maximum minimum fmax fmin median nanmedian kthvalue mode abs abs_ copysign "
    "scatter_reduce scatter_reduce_ index_reduce index_reduce_ segment_reduce remainder remainder_ fmod fmod_ "
    "rrelu_with_noise* _cdist_forward _pdist_forward";
// Near a pole, or at the end of a domain, no rounding is small.
constexpr std::string_view kPoles =
    "asin acos atanh acosh log1p logit erfinv lgamma digamma polygamma mvlgamma prod cumprod logcumsumexp "
    "binary_cross_entropy _ctc_loss _cudnn_ctc_loss special_* xlogy tan atan2 hypot";
constexpr std::string_view kSolvers =
    "linalg_* _linalg_* cholesky* _cholesky* lu_* ormqr geqrf triangular_solve inverse";
constexpr std::string_view kLosses =
    "mse_loss smooth_l1_loss huber_loss l1_loss soft_margin_loss multi_margin_loss multilabel_margin_loss* "
    "binary_cross_entropy_with_logits kl_div";

// constinit: the table is data; nothing runs before main().
constinit const std::array kRows = {
    PolicyRow{"relu relu_", "result self", Treatment::sign, {}, "its gradient asks for the sign alone"},
    PolicyRow{"hardtanh hardtanh_ threshold threshold_ leaky_relu leaky_relu_",
              "self result",
              Treatment::interval,
              {},
              "its gradient asks for one bit: inside its limits or not"},
    PolicyRow{"dropout.mul dropout.mul_", "other", Treatment::scaled_mask, {}, "a dropout mask: 0 or one factor"},
    PolicyRow{"max_pool* adaptive_max_pool* fractional_max_pool*",
              "self",
              Treatment::shape_only,
              {},
              "its gradient asks for the shape alone"},
    PolicyRow{"max_pool* adaptive_max_pool* fractional_max_pool*",
              "aux*",
              Treatment::index,
              {},
              "positions in the input's window"},
    PolicyRow{"avg_pool* _adaptive_avg_pool* nll_loss_forward nll_loss2d_forward",
              "self",
              Treatment::shape_only,
              {},
              "its gradient asks for the shape alone"},
    PolicyRow{kFusedAttention, "query key", Treatment::codec, kFourBits, "passes through an exponential in backward"},
    PolicyRow{kFusedAttention, "value", Treatment::codec, kTwoBits, "enters linearly"},
    // Backward takes the result's product with its gradient from that of every value. Noise in the values cancels there
    // if the result is made of the same values, and with it most of what attention's gradient would suffer.
    PolicyRow{kFusedAttention, "result", Treatment::again_or_codec, kTwoBits, "enters linearly"},
    PolicyRow{kFusedAttention, "aux*", Treatment::again_or_exactly, {}, "statistics of attention are kept exactly"},
    // Masks are padded so that rows are aligned: a kernel fails on a copy that is not.
    PolicyRow{kFusedAttention, "*", Treatment::exactly, {}, "masks of attention are kept exactly"},
    PolicyRow{"softmax.bmm softmax.baddbmm", "*", Treatment::codec, kTwoBits, "v of attention: enters linearly"},
    PolicyRow{"bmm baddbmm", "*", Treatment::codec, kFourBits, "may be q and k of attention"},
    PolicyRow{"mv addmv dot vdot", "*", Treatment::codec_if_large, kTwoBits, "a vector that enters linearly"},
    // More than a convolution's: its weight's gradient sums over rows, not over rows and pixels, and early in training
    // most of a transformer's error comes from here.
    PolicyRow{kLinear, "*", Treatment::codec_by_width, kThreeBits, "enters linearly"},
    PolicyRow{kConvolutions, "*", Treatment::codec_by_map, kTwoBits, "enters linearly"},
    PolicyRow{kBatchNorms, "input", Treatment::codec_by_map, kTwoBits, "input of a batch norm"},
    PolicyRow{kRowNorms, "input", Treatment::codec_by_row, kTwoBits, "input of a norm"},
    PolicyRow{kBatchNorms, "*", Treatment::as_is, {}, "statistics and weights of a batch norm are kept exactly"},
    PolicyRow{kRowNorms, "*", Treatment::as_is, {}, "statistics and weights of a norm are kept exactly"},
    PolicyRow{"_weight_norm_interface", "*", Treatment::as_is, {}, "norms of a weight are kept exactly"},
    PolicyRow{kRecurrent, "input", Treatment::codec, kFourBits, "input of a recurrent layer"},
    PolicyRow{kRecurrent, "*", Treatment::as_is, {}, "states and workspace of a recurrent layer are kept exactly"},
    PolicyRow{"gelu", "*", Treatment::pointwise, kThreeBits, "its slope is taken there"},
    PolicyRow{"silu silu_ mish hardswish softplus glu", "*", Treatment::pointwise, kFourBits,
              "its slope is taken there"},
    PolicyRow{"mul mul_", "*", Treatment::pointwise, kThreeBits, "a factor of what passes through"},
    PolicyRow{"pow pow_", "self", Treatment::codec_if_whole, kTwoBits, "smooth and pointwise"},
    PolicyRow{"pow pow_", "*", Treatment::as_is, {}, "a power with an exponent for each element"},
    // affine, because most of it may lie at the ends of its range, and there it must be exact.
    PolicyRow{"tanh tanh_ sigmoid sigmoid_", "*", Treatment::codec, kFourBitsBounded, "a curve between two limits"},
    PolicyRow{"_softmax _safe_softmax", "result", Treatment::codec, kEightBits, "result of an exponential"},
    PolicyRow{"_log_softmax", "*", Treatment::codec_if_large, kLogarithm, "logarithms of probabilities"},
    // bf16 and not 8 bits: they may be -inf, and stay so in bf16.
    PolicyRow{"logsumexp logaddexp logaddexp2", "*", Treatment::codec_if_large, kHalf,
              "a logarithm, which may be -inf"},
    // bf16 and not 8 bits: what divides needs its error small against itself, not against its neighbours.
    PolicyRow{"sqrt sqrt_ div div_ log log_ log2 log10", "*", Treatment::codec_if_large, kHalf,
              "its gradient is a quotient"},
    PolicyRow{kLosses, "*", Treatment::codec_if_large, kHalf, "a loss compares it with its target"},
    PolicyRow{"exp exp_ exp2 expm1 rsqrt rsqrt_ reciprocal reciprocal_ norm linalg_vector_norm", "*",
              Treatment::codec_if_large, kEightBits, "result of an exponential, a root or a norm"},
    PolicyRow{kComparing, "*", Treatment::as_is, {}, "its gradient compares values"},
    PolicyRow{kPoles, "*", Treatment::as_is, {}, "its gradient has a pole"},
    PolicyRow{kSolvers, "*", Treatment::as_is, {}, "its gradient solves with it"},
    PolicyRow{"grid_sampler* cudnn_grid_sampler torchvision::deform_conv2d torchvision::roi_align",
              "grid offset rois",
              Treatment::as_is,
              {},
              "positions in an image"},
    PolicyRow{"embedding", "indices", Treatment::index, {}, "rows of the embedding"},
    PolicyRow{"gather scatter scatter_ scatter_add scatter_add_ index_select index_add index_add_",
              "index",
              Treatment::index,
              {},
              "positions along one dimension"},
    // Few bits would do for most of what they save. But an additive mask or a log-sum-exp in few bits is a gradient
    // that points elsewhere, or NaN, and nothing tells them apart.
    PolicyRow{"*::*", "*", Treatment::foreign, {}, "only the author of this function knows what it is saved for"},
    PolicyRow{"*", "*", Treatment::pointwise, kFourBits, "an operator that the policy does not know"},
};

}  // namespace

std::span<const PolicyRow> policy_table() { return kRows; }

}  // namespace actzip
