#include "actzip/error.hpp"

#include <gtest/gtest.h>

namespace actzip {
namespace {

TEST(ErrorCodes, NumbersAndNamesNeverChange) {
  struct Entry {
    ErrorCode code;
    int number;
    std::string_view name;
  };
  for (const Entry& entry :
       {Entry{ErrorCode::invalid_spec, 1, "invalid_spec"}, Entry{ErrorCode::unsupported_dtype, 2, "unsupported_dtype"},
        Entry{ErrorCode::invalid_view, 3, "invalid_view"}, Entry{ErrorCode::invalid_segments, 4, "invalid_segments"},
        Entry{ErrorCode::wrong_size, 5, "wrong_size"}, Entry{ErrorCode::misaligned, 6, "misaligned"},
        Entry{ErrorCode::device_mismatch, 7, "device_mismatch"},
        Entry{ErrorCode::backend_unavailable, 8, "backend_unavailable"},
        Entry{ErrorCode::cuda_failure, 9, "cuda_failure"},
        Entry{ErrorCode::index_out_of_bound, 10, "index_out_of_bound"},
        Entry{ErrorCode::invalid_plan, 11, "invalid_plan"}, Entry{ErrorCode::budget_too_small, 12, "budget_too_small"},
        Entry{ErrorCode::invalid_state, 13, "invalid_state"}, Entry{ErrorCode::invalid_model, 14, "invalid_model"},
        Entry{ErrorCode::invalid_weights, 15, "invalid_weights"}, Entry{ErrorCode::invalid_scope, 16, "invalid_scope"},
        Entry{ErrorCode::store_failure, 17, "store_failure"}}) {
    EXPECT_EQ(static_cast<int>(entry.code), entry.number);
    EXPECT_EQ(to_string(entry.code), entry.name);
  }
  EXPECT_EQ(to_string(static_cast<ErrorCode>(99)), "unknown");
}

}  // namespace
}  // namespace actzip
