#include "operators/operator_table.hpp"

#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <typeinfo>
#include <unordered_map>

#include "operators/registered_operators.hpp"

namespace actzip::torch {

namespace {

// constinit: the table is data; nothing runs before main(). The first row that names an operator applies.
constinit const std::array kRows = {
    // One bit.
    OperatorRow{.names = "relu relu_",
                .slots = {{{"result self", Use::sign}}},
                .nodes = "ReluBackward0",
                .encoded_backward = "threshold_backward"},
    OperatorRow{.names = "hardtanh hardtanh_",
                .slots = {{{"self result", Use::interval}}},
                .facts = facts::two_limits,
                .is_torn_at_nan = true},
    OperatorRow{.names = "threshold threshold_",
                .slots = {{{"self result", Use::interval}}},
                .facts = facts::lower_limit,
                .nodes = "ThresholdBackward0",
                .encoded_backward = "threshold_backward"},
    OperatorRow{
        .names = "leaky_relu leaky_relu_", .slots = {{{"self result", Use::interval}}}, .facts = facts::zero_limit},
    OperatorRow{
        .names = "hardsigmoid hardsigmoid_", .slots = {{{"self", Use::interval}}}, .facts = facts::three_limits},
    OperatorRow{.names = "clamp", .slots = {{{"self", Use::interval}}}, .facts = facts::lower_and_upper},
    OperatorRow{.names = "clamp_min", .slots = {{{"self", Use::interval}}}, .facts = facts::least},
    OperatorRow{.names = "clamp_max", .slots = {{{"self", Use::interval}}}, .facts = facts::greatest},
    OperatorRow{.names = "hardshrink softshrink",
                .slots = {{{"self", Use::interval}}},
                .facts = facts::near_zero,
                .is_torn_at_nan = true},
    OperatorRow{.names = "dropout dropout_ feature_dropout feature_dropout_", .has_dropout = true},
    OperatorRow{
        .names = "dropout.mul dropout.mul_", .slots = {{{"other", Use::dropout_mask}}}, .facts = facts::dropout_factor},
    OperatorRow{.names = "native_dropout",
                .slots = {{{"*", Use::dropout_mask}}},
                .nodes = "NativeDropoutBackward0 ActzipDropout",
                .passes_on = PassesOn::some,
                .encoded_backward = "native_dropout_backward"},

    // Shapes and positions.
    OperatorRow{.names = "max_pool3d* adaptive_max_pool3d* fractional_max_pool3d*",
                .slots = {{{"self", Use::shape}, {"aux*", Use::pool_index}}},
                .facts = facts::volume_elems},
    OperatorRow{.names = "max_pool* adaptive_max_pool* fractional_max_pool*",
                .slots = {{{"self", Use::shape}, {"aux*", Use::pool_index}}},
                .facts = facts::plane_elems},
    OperatorRow{.names = "nll_loss_forward nll_loss2d_forward",
                .slots = {{{"self", Use::shape}, {"target", Use::index}}},
                .bound_by_values = true},
    OperatorRow{.names = "avg_pool* _adaptive_avg_pool* reflection_pad* replication_pad* _fft_r2c masked_select",
                .slots = {{{"self", Use::shape}}}},
    OperatorRow{.names = "index index_put index_put_ _unsafe_index _unsafe_index_put",
                .slots = {{{"aux*", Use::index}}},
                .bound_by_values = true},
    OperatorRow{.names = "take", .slots = {{{"index", Use::index}, {"self", Use::shape}}}, .bound_by_values = true},
    OperatorRow{.names = "put put_", .slots = {{{"index", Use::index}}}, .bound_by_values = true},
    OperatorRow{.names = "max_unpool2d max_unpool3d", .slots = {{{"indices", Use::index}}}, .bound_by_values = true},
    OperatorRow{.names = "cummax cummin",
                .slots = {{{"self", Use::shape}, {"aux*", Use::index}}},
                .facts = facts::any_dimension},
    OperatorRow{.names = "sort topk", .slots = {{{"aux*", Use::index}}}, .facts = facts::any_dimension},
    OperatorRow{.names = "max min median nanmedian kthvalue mode",
                .slots = {{{"aux*", Use::index}, {"*", Use::comparison}}},
                .facts = facts::any_dimension},
    OperatorRow{.names = "_embedding_bag",
                .slots = {{{"indices aux*", Use::index}}},
                .facts = facts::rows_of_bags,
                .bound_by_values = true},
    OperatorRow{.names = "index_copy index_copy_",
                .slots = {{{"index", Use::index}, {"source", Use::shape}}},
                .facts = facts::size_along_dimension},
    OperatorRow{.names = "index_fill index_fill_", .slots = {{{"index", Use::index}}}, .bound_by_values = true},
    OperatorRow{.names = "scatter_reduce scatter_reduce_ index_reduce index_reduce_",
                .slots = {{{"index", Use::index}, {"*", Use::comparison}}},
                .facts = facts::size_along_dimension},
    OperatorRow{.names = "embedding", .slots = {{{"indices", Use::index}}}, .facts = facts::rows_of_table},
    OperatorRow{.names = "gather",
                .slots = {{{"index", Use::index}, {"self", Use::shape}}},
                .facts = facts::size_along_dimension},
    OperatorRow{.names = "index_add index_add_",
                .slots = {{{"index", Use::index}, {"source", Use::shape}}},
                .facts = facts::size_along_dimension},
    OperatorRow{.names = "scatter scatter_ scatter_add scatter_add_ index_select",
                .slots = {{{"index", Use::index}}},
                .facts = facts::size_along_dimension},
    OperatorRow{.names = "grid_sampler* cudnn_grid_sampler torchvision::deform_conv2d torchvision::roi_align",
                .slots = {{{"grid offset rois", Use::position}}}},

    // Attention.
    OperatorRow{.names = "_scaled_dot_product_*",
                .slots = {{{"query", Use::attention_query},
                           {"key", Use::attention_key},
                           {"value", Use::attention_value},
                           {"result", Use::attention_result},
                           {"aux*", Use::attention_statistics},
                           {"*", Use::attention_mask}}},
                .runs_again = true},
    OperatorRow{.names = "_flash_attention_* _efficient_attention_* _cudnn_attention_*",
                .slots = {{{"query", Use::attention_query},
                           {"key", Use::attention_key},
                           {"value", Use::attention_value},
                           {"result", Use::attention_result},
                           {"aux*", Use::attention_statistics},
                           {"*", Use::attention_mask}}}},
    OperatorRow{.names = "softmax.bmm softmax.baddbmm", .slots = {{{"*", Use::attention_value}}}},
    OperatorRow{.names = "_softmax",
                .slots = {{{"result", Use::softmax_result}}},
                .facts = facts::row_along_dimension,
                .nodes = "SoftmaxBackward0",
                .passes_on = PassesOn::probabilities},
    OperatorRow{.names = "_safe_softmax",  // its result has no NaN
                .slots = {{{"result", Use::softmax_result}}},
                .nodes = "SafeSoftmaxBackward0",
                .passes_on = PassesOn::probabilities},
    OperatorRow{.names = "_masked_softmax", .nodes = "MaskedSoftmaxBackward0", .passes_on = PassesOn::probabilities},

    // Products of matrices, and convolutions.
    OperatorRow{.names = "bmm", .slots = {{{"*", Use::batched_operand}}}, .first_factor = 0},
    OperatorRow{.names = "baddbmm", .slots = {{{"*", Use::batched_operand}}}, .first_factor = 1},
    OperatorRow{.names = "mv dot vdot",
                .slots = {{{"*", Use::vector_operand}}},
                .nodes = "MvBackward0 DotBackward0 VdotBackward0",
                .passes_on = PassesOn::arithmetic},
    OperatorRow{.names = "addmv", .slots = {{{"*", Use::vector_operand}}}},
    OperatorRow{.names = "linear addmm mm _grouped_mm",
                .slots = {{{"input mat1 self", Use::linear_input}, {"*", Use::linear_weight}}},
                .facts = facts::operand_width},
    OperatorRow{.names = "matmul addbmm", .slots = {{{"*", Use::linear_input}}}, .facts = facts::operand_width},
    OperatorRow{.names = "convolution* cudnn_convolution* _convolution* mkldnn_convolution* thnn_conv* slow_conv*",
                .slots = {{{"input self", Use::convolution_input}, {"*", Use::convolution_weight}}},
                .facts = facts::channel_elems},

    // Norms, and layers with states.
    OperatorRow{.names = "native_batch_norm*",
                .slots = {{{"input", Use::batch_norm_input}, {"*", Use::norm_statistics}}},
                .facts = facts::channel_elems,
                .nodes = "NativeBatchNormBackward0",
                .encoded_backward = "native_batch_norm_backward"},
    OperatorRow{.names = "cudnn_batch_norm*",
                .slots = {{{"input", Use::batch_norm_input}, {"*", Use::norm_statistics}}},
                .facts = facts::channel_elems,
                .nodes = "CudnnBatchNormBackward0",
                .encoded_backward = "cudnn_batch_norm_backward"},
    OperatorRow{.names = "miopen_batch_norm* batch_norm* _native_batch_norm* _batch_norm*",
                .slots = {{{"input", Use::batch_norm_input}, {"*", Use::norm_statistics}}},
                .facts = facts::channel_elems},
    OperatorRow{.names = "native_layer_norm _fused_rms_norm",
                .slots = {{{"input", Use::row_norm_input}, {"*", Use::norm_statistics}}},
                .facts = facts::row_width},
    OperatorRow{.names = "native_group_norm",
                .slots = {{{"input", Use::row_norm_input}, {"*", Use::norm_statistics}}},
                .facts = facts::group_elems},
    OperatorRow{.names = "instance_norm", .slots = {{{"input", Use::row_norm_input}, {"*", Use::norm_statistics}}}},
    OperatorRow{.names = "_weight_norm_interface",
                .slots = {{{"*", Use::norm_statistics}}},
                .nodes = "WeightNormInterfaceBackward0",
                .passes_on = PassesOn::arithmetic},
    OperatorRow{.names = "mkldnn_rnn_layer",
                .slots = {{{"input", Use::recurrent_input}, {"*", Use::recurrent_state}}},
                .runs_again = true},
    OperatorRow{.names = "_cudnn_rnn* miopen_rnn* _thnn_fused_* _lstm_mps",
                .slots = {{{"input", Use::recurrent_input}, {"*", Use::recurrent_state}}}},

    // Element by element.
    OperatorRow{.names = "gelu",
                .slots = {{{"*", Use::gelu_input}}},
                .nodes = "GeluBackward0",
                .encoded_backward = "gelu_backward"},
    OperatorRow{.names = "silu silu_",
                .slots = {{{"*", Use::slope_input}}},
                .nodes = "SiluBackward0",
                .encoded_backward = "silu_backward",
                .activation = Activation::silu},
    OperatorRow{.names = "mish hardswish softplus glu elu elu_ celu celu_ log_sigmoid_forward asinh",
                .slots = {{{"*", Use::slope_input}}}},
    OperatorRow{.names = "mul mul_",
                .slots = {{{"*", Use::factor}}},
                .facts = facts::other_factor,
                .nodes = "MulBackward0",
                .passes_on = PassesOn::scaled,
                .encoded_backward = "mul.Tensor"},
    OperatorRow{.names = "addcmul addcmul_", .slots = {{{"tensor1 tensor2", Use::factor}}}},
    OperatorRow{.names = "pow pow_",
                .slots = {{{"self", Use::power_base}, {"*", Use::power_exponent}}},
                .facts = facts::exponent,
                .nodes = "PowBackward0",
                .encoded_backward = "pow.Tensor_Scalar"},
    // Compiled graphs may save an operator's input and compute its result again; eager code never does.
    OperatorRow{.names = "tanh sigmoid", .slots = {{{"self", Use::slope_input}, {"*", Use::bounded_result}}}},
    OperatorRow{.names = "tanh_ sigmoid_", .slots = {{{"*", Use::bounded_result}}}},
    OperatorRow{.names = "_log_softmax", .slots = {{{"result", Use::log_probabilities}}}},
    OperatorRow{.names = "logsumexp logaddexp logaddexp2", .slots = {{{"*", Use::log_sum}}}},
    OperatorRow{
        .names = "div div_", .slots = {{{"*", Use::quotient}}}, .nodes = "DivBackward0", .passes_on = PassesOn::scaled},
    OperatorRow{.names = "sqrt sqrt_ log log_ log2 log10", .slots = {{{"*", Use::quotient}}}},
    OperatorRow{.names = "soft_margin_loss binary_cross_entropy_with_logits kl_div",
                .slots = {{{"*", Use::loss_operand}}}},
    // A difference of two operands is small beside them where the network is nearly right, or where both are far from
    // 0.
    OperatorRow{.names = "mse_loss smooth_l1_loss huber_loss l1_loss multi_margin_loss multilabel_margin_loss*",
                .slots = {{{"*", Use::comparison}}}},
    OperatorRow{.names = "norm",
                .slots = {{{"*", Use::exponential_result}}},
                .nodes = "NormBackward0 NormBackward1",
                .passes_on = PassesOn::arithmetic},
    OperatorRow{.names = "exp exp2 expm1 rsqrt reciprocal", .slots = {{{"result", Use::exponential_result}}}},
    OperatorRow{.names = "exp_ rsqrt_ reciprocal_ linalg_vector_norm", .slots = {{{"*", Use::exponential_result}}}},
    OperatorRow{.names = "amax amin aminmax maximum minimum fmax fmin abs abs_ copysign segment_reduce remainder "
                         "remainder_ fmod fmod_ rrelu_with_noise* _cdist_forward _pdist_forward",
                .slots = {{{"*", Use::comparison}}}},
    OperatorRow{.names = "asin acos atanh acosh log1p logit erfinv lgamma digamma polygamma mvlgamma prod cumprod "
                         "logcumsumexp binary_cross_entropy _ctc_loss _cudnn_ctc_loss special_* xlogy tan atan2 hypot",
                .slots = {{{"*", Use::pole}}}},
    OperatorRow{.names = "linalg_* _linalg_* cholesky* _cholesky* lu_* ormqr geqrf triangular_solve inverse",
                .slots = {{{"*", Use::solver}}}},

    // Operators that save nothing, but may stand between a parameter and the operator that uses it.
    OperatorRow{.names = "t", .nodes = "TBackward0", .passes_on = PassesOn::transposition},
    OperatorRow{.names = "transpose permute view _unsafe_view _reshape_alias select slice split split_with_sizes "
                         "squeeze unsqueeze expand alias as_strided",
                .nodes = "TransposeBackward0 PermuteBackward0 ViewBackward0 UnsafeViewBackward0 ReshapeAliasBackward0 "
                         "SelectBackward0 SliceBackward0 SplitBackward0 SplitWithSizesBackward0 SqueezeBackward0 "
                         "SqueezeBackward1 UnsqueezeBackward0 ExpandBackward0 AliasBackward0 AsStridedBackward0",
                .passes_on = PassesOn::view},
    OperatorRow{.names = "_to_copy", .nodes = "ToCopyBackward0", .passes_on = PassesOn::cast},
    OperatorRow{.names = "clone", .nodes = "CloneBackward0", .passes_on = PassesOn::scaled},
    OperatorRow{.names = "add sub", .nodes = "AddBackward0 SubBackward0", .passes_on = PassesOn::arithmetic},
};

bool is_foreign(std::string_view name) { return name.find("::") != std::string_view::npos; }

/// Patterns match torch's own names only: "max_pool*" does not match "max_pools::any".
bool matches(std::string_view name, std::string_view pattern) {
  if (!pattern.ends_with('*')) return name == pattern;
  return name.starts_with(pattern.substr(0, pattern.size() - 1)) && !is_foreign(name);
}

/// Whether `name` is in a list of patterns separated by spaces.
bool in_list(std::string_view name, std::string_view patterns) {
  while (!patterns.empty()) {
    const std::size_t end = std::min(patterns.find(' '), patterns.size());
    if (matches(name, patterns.substr(0, end))) return true;
    patterns.remove_prefix(std::min(end + 1, patterns.size()));
  }
  return false;
}

}  // namespace

std::span<const OperatorRow> operator_table() { return kRows; }

const OperatorRow* find_known(std::string_view name) {
  const auto found = std::ranges::find_if(kRows, [&](const OperatorRow& row) { return in_list(name, row.names); });
  return found == kRows.end() ? nullptr : &*found;
}

const OperatorRow* find_operator(std::string_view name) {
  const OperatorRow* const known = find_known(name);
  return known != nullptr ? known : find_registered(name);
}

const OperatorRow* find_node(const ::torch::autograd::Node& node) {
  // By type, because a node builds its name anew for each call. All Python nodes share one type; they have no row,
  // whatever their class is called.
  thread_local std::unordered_map<const std::type_info*, const OperatorRow*> known;
  const auto [place, is_new] = known.try_emplace(&typeid(node), nullptr);
  if (is_new) {
    const std::string name = node.name();
    const auto found = std::ranges::find_if(kRows, [&](const OperatorRow& row) { return in_list(name, row.nodes); });
    if (found != kRows.end()) place->second = &*found;
  }
  return place->second;
}

Use use_of(const OperatorRow* row, std::string_view slot) {
  if (row == nullptr) return Use::unknown;
  const auto found = std::ranges::find_if(row->slots, [&](const SlotUse& entry) { return in_list(slot, entry.slots); });
  return found == row->slots.end() ? Use::unknown : found->use;
}

Use schema_use(std::string_view schema, std::string_view slot) {
  constexpr std::string_view kOwn = "aten::";
  const bool is_torch = schema.starts_with(kOwn);
  if (is_torch) schema.remove_prefix(kOwn.size());
  const Use use = use_of(find_operator(schema.substr(0, schema.find('.'))), slot);
  return use == Use::unknown && !is_torch ? Use::foreign : use;
}

bool holds_weight(Use use, std::string_view slot) {
  return slot == "weight" || use == Use::linear_weight || use == Use::convolution_weight;
}

}  // namespace actzip::torch
