// Reads limits, factors, bounds and sizes from the arguments of a call. Positions are those of torch's schemas.
// operator_table.cpp assigns the readers to operators.
#pragma once

#include "actzip/policy.hpp"
#include "operators/call.hpp"

namespace actzip::torch {

/// Sets in `facts` what `call` reveals about the tensor that it saves in `slot`. `outer` is the call inside which
/// `call` runs, or null.
using FactsReader = void (*)(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);

namespace facts {

void two_limits(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void lower_limit(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void zero_limit(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void dropout_factor(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void other_factor(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void exponent(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// Interval from the second argument to the third, both included; either may be missing. A limit that is a tensor
/// differs per element, so one bit is not enough.
void lower_and_upper(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void least(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void greatest(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// Interval from minus to plus the second argument, included.
void near_zero(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// Width of a row of the first argument.
void row_width(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// The same, if the dimension that the second argument names is the last one.
void row_along_dimension(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// Width of a row of the saved argument.
void operand_width(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// Elements of one channel of the first argument.
void channel_elems(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// Elements of one group of channels.
void group_elems(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// Interval from -3 to 3.
void three_limits(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void rows_of_table(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// Number of rows of the table, for the indices only.
void rows_of_bags(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void size_along_dimension(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// The largest size of the first argument, for indices along an unknown dimension.
void any_dimension(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// Number of positions in a plane, or a volume.
void plane_elems(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void volume_elems(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);

}  // namespace facts

}  // namespace actzip::torch
