// The mathematics of `affine` as a check in binary64: how far a decoded value may lie from the value encoded.
#pragma once

#include <gtest/gtest.h>

#include <span>

#include "actzip/spec.hpp"
#include "actzip/types.hpp"
#include "support/device_memory.hpp"

namespace actzip::testing {

/// Checks statistics and values of an encoding of `original`, one segment, decoded as `out`. What is not below the
/// spec's floor is finite and in range.
::testing::AssertionResult affine_keeps_its_bounds(const Affine& spec, std::span<const double> original,
                                                   const Bytes& encoded, std::span<const double> decoded, DType out);

}  // namespace actzip::testing
