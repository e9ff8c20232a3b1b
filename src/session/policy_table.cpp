// The default policy: one row for each thing an operator saves. docs/policy.md explains the choices.
#include <array>

#include "actzip/policy.hpp"

namespace actzip {

namespace {

constexpr Rotated kTwoBits{.bits = Bits(2)};
constexpr Rotated kFourBits{.bits = Bits(4)};
constexpr Affine kEightBits{.bits = Bits(8), .rounding = Rounding::nearest};
constexpr Cast kHalf{.to = DType::bf16};

// Names of operators that share their rows.
constexpr std::string_view kLinear =
    "linear addmm mm matmul addmv mv dot addbmm convolution* cudnn_convolution* "
    "_convolution* mkldnn_convolution* thnn_conv* slow_conv*";
constexpr std::string_view kNorms =
    "native_batch_norm* cudnn_batch_norm* miopen_batch_norm* batch_norm* "
    "_native_batch_norm* _batch_norm* native_layer_norm native_group_norm "
    "_fused_rms_norm instance_norm";
constexpr std::string_view kFusedAttention =
    "_scaled_dot_product_* _flash_attention_* _efficient_attention_* "
    "_cudnn_attention_*";

// constinit: the table is data; nothing runs before main().
constinit const std::array kRows = {
    PolicyRow{"relu relu_", "result self", Treatment::sign, {}, "its gradient asks for the sign alone"},
    PolicyRow{"hardtanh hardtanh_ relu6 relu6_ threshold threshold_ leaky_relu leaky_relu_",
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
    PolicyRow{kFusedAttention, "query key", Treatment::codec, kEightBits, "passes through an exponential in backward"},
    PolicyRow{kFusedAttention, "value result", Treatment::codec, kTwoBits, "enters linearly"},
    PolicyRow{kFusedAttention, "*", Treatment::as_is, {}, "statistics and masks of attention are kept exactly"},
    PolicyRow{"softmax.bmm softmax.baddbmm", "*", Treatment::codec, kTwoBits, "v of attention: enters linearly"},
    PolicyRow{"bmm baddbmm", "*", Treatment::codec, kEightBits, "may be q and k of attention"},
    PolicyRow{kLinear, "*", Treatment::codec, kTwoBits, "enters linearly"},
    PolicyRow{kNorms, "input", Treatment::codec, kTwoBits, "input of a norm"},
    PolicyRow{kNorms, "*", Treatment::as_is, {}, "statistics and weights of a norm are kept exactly"},
    PolicyRow{"gelu silu silu_ mish hardswish softplus mul mul_ pow glu", "*", Treatment::pointwise, kTwoBits,
              "smooth and pointwise"},
    PolicyRow{"_softmax _safe_softmax", "result", Treatment::codec, kEightBits, "result of an exponential"},
    PolicyRow{"mse_loss smooth_l1_loss huber_loss binary_cross_entropy* kl_div soft_margin_loss", "*", Treatment::codec,
              kEightBits, "a loss: all gradients pass through it"},
    // bf16 and not 8 bits: masked logits are -inf here, and stay so in bf16.
    PolicyRow{"_log_softmax", "result", Treatment::codec_if_large, kHalf, "a logarithm, which may be -inf"},
    PolicyRow{"exp sqrt rsqrt reciprocal div div_ norm linalg_vector_norm", "*", Treatment::codec_if_large, kEightBits,
              "result of exp, sqrt, division or norm"},
    PolicyRow{"embedding", "indices", Treatment::index, {}, "rows of the embedding"},
    PolicyRow{"gather scatter scatter_ scatter_add scatter_add_ index_select index_add index_add_",
              "index",
              Treatment::index,
              {},
              "positions along one dimension"},
    PolicyRow{"*", "*", Treatment::pointwise, kFourBits, "an operator that the policy does not know"},
};

}  // namespace

std::span<const PolicyRow> policy_table() { return kRows; }

}  // namespace actzip
