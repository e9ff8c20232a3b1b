// The one exception type of actzip. Codes are stable: once released, a number never changes its meaning.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace actzip {

enum class ErrorCode : int {
  invalid_spec = 1,         ///< a codec description that cannot be parsed, or an option or field out of its range
  unsupported_dtype = 2,    ///< the codec does not encode or decode this element type
  invalid_view = 3,         ///< shape or strides that no codec supports
  invalid_segments = 4,     ///< the elements do not divide into that many equal segments
  wrong_size = 5,           ///< a buffer whose size is not what encoded_bytes() or workspace_bytes() says
  misaligned = 6,           ///< a pointer that is not aligned: encoded buffers to 16 bytes, others to their type
  device_mismatch = 7,      ///< view, buffer and stream are not on the same device
  backend_unavailable = 8,  ///< a device that this build or this machine does not have
  cuda_failure = 9,         ///< the CUDA runtime refused a launch or a copy
  index_out_of_bound = 10,  ///< an index outside the bound that the operator's arguments state
  invalid_plan = 11,        ///< an item, a choice or a budget of a plan that is out of range
  budget_too_small = 12,    ///< the cheapest choices of a plan, or the fewest bits of a step, exceed the budget
  invalid_state = 13,       ///< a saved state that cannot be loaded, or a saved tensor that cannot be restored any more
  invalid_model = 14,       ///< no network of that name, or one of its sizes is missing or out of range
  invalid_weights = 15,     ///< a file of weights that cannot be read or written, or does not fit the network
  invalid_scope = 16,       ///< leaving a scope that was not the last one entered on its thread
  store_failure = 17,       ///< host memory or a file for the store is not available
};

/// Name of a code, as in the enum: "invalid_spec".
std::string_view to_string(ErrorCode code) noexcept;

/// Thrown for every user error. The message says what was given and what is allowed.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace actzip
