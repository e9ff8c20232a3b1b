#include "actzip/error.hpp"

namespace actzip {

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_spec: return "invalid_spec";
    case ErrorCode::unsupported_dtype: return "unsupported_dtype";
    case ErrorCode::invalid_view: return "invalid_view";
    case ErrorCode::invalid_segments: return "invalid_segments";
    case ErrorCode::wrong_size: return "wrong_size";
    case ErrorCode::misaligned: return "misaligned";
    case ErrorCode::device_mismatch: return "device_mismatch";
    case ErrorCode::backend_unavailable: return "backend_unavailable";
    case ErrorCode::cuda_failure: return "cuda_failure";
    case ErrorCode::index_out_of_bound: return "index_out_of_bound";
    case ErrorCode::invalid_plan: return "invalid_plan";
    case ErrorCode::budget_too_small: return "budget_too_small";
    case ErrorCode::invalid_state: return "invalid_state";
    case ErrorCode::invalid_model: return "invalid_model";
    case ErrorCode::invalid_weights: return "invalid_weights";
    case ErrorCode::invalid_scope: return "invalid_scope";
    case ErrorCode::store_failure: return "store_failure";
  }
  return "unknown";
}

}  // namespace actzip
