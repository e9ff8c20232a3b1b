// Checks the mathematics of `affine` in binary64: how far a decoded value may be from the original.
#pragma once

#include <gtest/gtest.h>

#include <span>

#include "actzip/spec.hpp"
#include "actzip/types.hpp"
#include "support/device_memory.hpp"

namespace actzip::testing {

/// Checks the statistics and values of an encoding of `original` in one segment, decoded as `out`. Values that are not
/// below the spec's floor must be finite and in range.
::testing::AssertionResult affine_keeps_its_bounds(const Affine& spec, std::span<const double> original,
                                                   const Bytes& encoded, std::span<const double> decoded, DType out);

}  // namespace actzip::testing
