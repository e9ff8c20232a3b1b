// Names of operators that share rows of the policy, as lists for PolicyRow.
#pragma once

#include <string_view>

namespace actzip::session {

inline constexpr std::string_view kLinear = "linear addmm mm matmul addbmm";
inline constexpr std::string_view kConvolutions =
    "convolution* cudnn_convolution* _convolution* mkldnn_convolution* thnn_conv* slow_conv*";
inline constexpr std::string_view kBatchNorms =
    "native_batch_norm* cudnn_batch_norm* miopen_batch_norm* batch_norm* "
    "_native_batch_norm* _batch_norm*";

}  // namespace actzip::session
