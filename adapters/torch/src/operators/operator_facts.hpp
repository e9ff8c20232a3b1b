// What the arguments of a call say about limits, factors and bounds. Positions are those of torch's schemas.
// operator_table.cpp says which reader serves which operator.
#pragma once

#include "actzip/policy.hpp"
#include "operators/call.hpp"

namespace actzip::torch {

/// `outer` is the call inside of which `call` runs; null if there is none.
using FactsReader = void (*)(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);

namespace facts {

void two_limits(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void lower_limit(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void zero_limit(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void dropout_factor(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void other_factor(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void exponent(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// From one to the other, these included; either may be left out. One that is a tensor is a limit for each element.
void lower_and_upper(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void least(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void greatest(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// Not farther from 0 than the second argument.
void near_zero(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// Rows of the first argument.
void row_width(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// Rows of the first argument, if they are what the second names.
void row_along_dimension(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// Rows of the saved argument.
void operand_width(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// Elements of one channel of the first argument.
void channel_elems(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// Elements of one group of channels.
void group_elems(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// From -3 to 3.
void three_limits(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void rows_of_table(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// The same for its indices; of what else it saves nothing is known.
void rows_of_bags(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void size_along_dimension(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// Positions along any dimension of the first argument, whichever it is.
void any_dimension(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
/// Positions in a plane, or a volume.
void plane_elems(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);
void volume_elems(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts);

}  // namespace facts

}  // namespace actzip::torch
