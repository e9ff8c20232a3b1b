#include "operators/function_table.hpp"

#include <algorithm>
#include <array>

namespace actzip::torch {

namespace {

constexpr OperatorRow kBatchNorm{.names = {},
                                 .slots = {{{"input", Use::batch_norm_input}, {"*", Use::norm_statistics}}},
                                 .facts = facts::channel_elems};
constexpr OperatorRow kRowNorm{
    .names = {}, .slots = {{{"input", Use::row_norm_input}, {"*", Use::norm_statistics}}}, .facts = facts::row_width};
// The layer that follows usually keeps the result anyway.
constexpr OperatorRow kAttention{
    .names = {}, .slots = {{{"query key value", Use::attention_operand}, {"*", Use::attention_statistics}}}};
// It may apply a SiLU to its result; backward computes that again from the input.
constexpr OperatorRow kConvolutionAndSlope{.names = {},
                                           .slots = {{{"input", Use::slope_input}, {"*", Use::recurrent_state}}}};

// constinit: the table is data; nothing runs before main(). Functions whose backward writes into what they saved, or
// into the gradient that they receive, must not be listed: restored tensors may be shared, and the guard runs nodes
// twice.
constinit const std::array kFunctions = {
    FunctionRow{"torch.nn.modules._functions.SyncBatchNorm", "input weight mean invstd count", kBatchNorm, true},
    FunctionRow{"torch.nn.modules._functions.SyncBatchNorm", "input mean invstd count", kBatchNorm, true},

    FunctionRow{"flash_attn.flash_attn_interface.FlashAttnFunc flash_attn.flash_attn_interface.FlashAttnKVPackedFunc "
                "flash_attn.flash_attn_interface.FlashAttnQKVPackedFunc",
                "query key value output sums random", kAttention},
    FunctionRow{"flash_attn.flash_attn_interface.FlashAttnVarlenFunc "
                "flash_attn.flash_attn_interface.FlashAttnVarlenKVPackedFunc",
                "query key value output sums starts_query starts_key random", kAttention},
    FunctionRow{"flash_attn.flash_attn_interface.FlashAttnVarlenQKVPackedFunc",
                "query key value output sums starts random", kAttention},
    FunctionRow{"xformers.ops.fmha._fMHA", "query key value output sums", kAttention},

    // With `memory_efficient` they save their result instead of the input, and no row matches.
    FunctionRow{"apex.normalization.fused_layer_norm.FusedLayerNormAffineFunction "
                "apex.normalization.fused_layer_norm.FusedLayerNormAffineMixedDtypesFunction "
                "torch._library.autograd.GeneratedBackwardFor_apex_fused_layer_norm_affine_fwd_default",
                "input weight bias mean invstd", kRowNorm},
    FunctionRow{"apex.normalization.fused_layer_norm.FusedLayerNormFunction "
                "torch._library.autograd.GeneratedBackwardFor_apex_fused_layer_norm_fwd_default",
                "input mean invstd", kRowNorm},
    FunctionRow{"apex.normalization.fused_layer_norm.FusedRMSNormAffineFunction "
                "apex.normalization.fused_layer_norm.FusedRMSNormAffineMixedDtypesFunction "
                "torch._library.autograd.GeneratedBackwardFor_apex_fused_rms_norm_affine_fwd_default",
                "input weight invstd", kRowNorm},
    FunctionRow{"apex.normalization.fused_layer_norm.FusedRMSNormFunction "
                "torch._library.autograd.GeneratedBackwardFor_apex_fused_rms_norm_fwd_default",
                "input invstd", kRowNorm},
    FunctionRow{"liger_kernel.ops.layer_norm.LigerLayerNormFunction", "input weight bias mean invstd", kRowNorm},

    // The weight is followed by bias, sequences and states, as far as they exist, all kept exactly.
    FunctionRow{"causal_conv1d.causal_conv1d_interface.CausalConv1dFn", "input weight", kConvolutionAndSlope},
    FunctionRow{"causal_conv1d.causal_conv1d_interface.CausalConv1dFn", "input weight rest0", kConvolutionAndSlope},
    FunctionRow{"causal_conv1d.causal_conv1d_interface.CausalConv1dFn", "input weight rest0 rest1",
                kConvolutionAndSlope},
    FunctionRow{"causal_conv1d.causal_conv1d_interface.CausalConv1dFn", "input weight rest0 rest1 rest2",
                kConvolutionAndSlope},
};

bool has_name(const FunctionRow& row, std::string_view name) {
  const auto names = words_of(row.names);
  return std::ranges::find(names, name) != names.end();
}

bool saves_these(const FunctionRow& row, const std::vector<bool>& is_result) {
  const auto saves = words_of(row.saves);
  return std::ranges::equal(saves, is_result,
                            [](std::string_view save, bool result) { return !result || save.starts_with("output"); });
}

}  // namespace

std::span<const FunctionRow> function_table() { return kFunctions; }

bool is_known_function(std::string_view name) {
  return std::ranges::any_of(kFunctions, [&](const FunctionRow& row) { return has_name(row, name); });
}

const FunctionRow* find_function(std::string_view name, const std::vector<bool>& is_result) {
  const auto found = std::ranges::find_if(
      kFunctions, [&](const FunctionRow& row) { return has_name(row, name) && saves_these(row, is_result); });
  return found == kFunctions.end() ? nullptr : &*found;
}

std::vector<std::string_view> words_of(std::string_view list) {
  std::vector<std::string_view> words;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(' '), list.size());
    words.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return words;
}

}  // namespace actzip::torch
