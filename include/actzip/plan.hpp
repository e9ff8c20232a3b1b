// How many bits for what. A plan gives each item one of its choices, so that the variance which compression adds to the
// gradient is least under a budget:
//
//   minimise  sum of sensitivity * error(choice)   subject to   sum of cost(choice) <= budget
//
//   std::vector<PlanItem> items;
//   items.push_back({.elems = 1 << 20, .sensitivity = 0.3, .choices = plan_choices(DType::bf16, 1 << 20)});
//   const Plan plan = solve_plan(items, AverageBits{2});
//   const CodecSpec& spec = items[0].choices[plan.choices[0]].spec;
//
// Nothing here knows where sensitivities come from, or does anything to a tensor. docs/plan.md has the mathematics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "actzip/spec.hpp"
#include "actzip/types.hpp"

namespace actzip {

/// One way to keep an item.
struct PlanChoice {
  CodecSpec spec = Copy{};
  int bits = 0;           ///< of one code, 0 to 64: what a budget in bits counts
  std::size_t bytes = 0;  ///< of the item with statistics and planes, up to 2^54: what a budget in bytes counts
  double error = 0.0;     ///< relative squared error, 0 to 1e100
};

/// What is kept in one way: a site, or a sample of a site.
struct PlanItem {
  std::int64_t elems = 0;             ///< 1 to 2^48
  double sensitivity = 0.0;           ///< variance of the gradient for a relative squared error of 1 here, 0 to 1e100
  std::vector<PlanChoice> choices{};  ///< at least one
};

/// Bits of all codes over all elements. Statistics (0.125 bits an element for groups of 256) and mask planes come on
/// top, as they do for a codec of so many bits.
struct AverageBits {
  double value = 2.0;
};

/// Bytes of all items, with everything that belongs to them.
struct TotalBytes {
  std::size_t value = 0;
};

using Budget = std::variant<AverageBits, TotalBytes>;

struct Plan {
  std::vector<std::size_t> choices;  ///< for each item the number of its choice
  double variance = 0.0;             ///< sum of sensitivity * error
  double least_variance = 0.0;       ///< proven: no plan within the budget has less
  bool optimal = true;               ///< `variance` is the least, up to a rounding of 1e-12 of it
  std::size_t bytes = 0;
  double average_bits = 0.0;
};

/// The usual choices for `elems` elements: all of rotated, affine with its most bits (nearest), and the bytes as they
/// are; sizes and errors are those of encoded_bytes() and expected_error(). With a mask plane: rotated with one, and
/// the bytes as they are. Throws Error as encoded_bytes() does.
std::vector<PlanChoice> plan_choices(DType dtype, std::int64_t elems, bool mask_plane = false);

/// The plan of least variance within the budget.
///
/// Optimal whenever `optimal` says so, which is decided by proof and not by luck: linear relaxation, then a search over
/// the items that the relaxation leaves open. The search ends after a fixed number of steps (some 10 ms). What is left
/// is a sum of nearly equal trade-offs that misses the budget by a few bytes: then `optimal` is false, and
/// `least_variance` says how much better another plan could be. In any case `variance` exceeds the least by no more
/// than one step of one item to its next choice is worth.
///
/// Deterministic. Of choices that are equal in error an item takes the cheapest, and of equal ones the first: what
/// nothing depends on (sensitivity 0) costs as little as it can.
/// Throws Error(invalid_plan) for items or budgets out of their range, and Error(budget_too_small), which says how much
/// is needed, if the cheapest choices are above the budget.
Plan solve_plan(std::span<const PlanItem> items, const Budget& budget);

/// Variance if all items had the same bits, or the nearest fewer that they have, at so many bytes in total: what a plan
/// is to be compared with. Between two widths both are mixed, blindly, in the share that meets the bytes.
/// Throws Error(invalid_plan) as solve_plan() does.
double uniform_variance(std::span<const PlanItem> items, TotalBytes bytes);

}  // namespace actzip
