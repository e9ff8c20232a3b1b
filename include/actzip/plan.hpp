// Distributes bits. A plan gives each item one of its choices, so that compression adds the least variance to the
// gradient within a budget:
//
//     minimise  sum of sensitivity * error(choice)   subject to   sum of cost(choice) <= budget
//
//   std::vector<PlanItem> items;
//   items.push_back({.elems = 1 << 20, .sensitivity = 0.3, .choices = plan_choices(DType::bf16, 1 << 20)});
//   const Plan plan = solve_plan(items, AverageBits{2});
//   const CodecSpec& spec = items[0].choices[plan.choices[0]].spec;
//
// These functions only compute: they neither find sensitivities nor touch a tensor. docs/plan.md has the mathematics.
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
  int bits = 0;           ///< of one code, 0 to 64; a budget in bits counts these
  std::size_t bytes = 0;  ///< of the item with statistics and planes, up to 2^54; a budget in bytes counts these
  double error = 0.0;     ///< relative squared error, 0 to 1e100
};

/// Something that is kept in one way: a site, or a sample of a site.
struct PlanItem {
  std::int64_t elems = 0;             ///< 1 to 2^48
  double sensitivity = 0.0;           ///< variance of the gradient for a relative squared error of 1 here, 0 to 1e100
  std::vector<PlanChoice> choices{};  ///< at least one
};

/// Budget of bits: those of all codes, divided by the number of elements. Statistics (0.125 bits an element for groups
/// of 256) and mask planes are not counted, so a codec of so many bits always meets the budget.
struct AverageBits {
  double value = 2.0;
};

/// Budget of bytes: all items, with everything that belongs to them.
struct TotalBytes {
  std::size_t value = 0;
};

using Budget = std::variant<AverageBits, TotalBytes>;

struct Plan {
  std::vector<std::size_t> choices;  ///< for each item the index of its choice
  double variance = 0.0;             ///< sum of sensitivity * error
  double least_variance = 0.0;       ///< proven lower bound: no plan within the budget has less
  bool optimal = true;               ///< `variance` is the least possible, up to a relative rounding of 1e-12
  std::size_t bytes = 0;
  double average_bits = 0.0;
};

/// Returns the usual choices for `elems` elements: every width of rotated, affine with its most bits (dithered), and the
/// unchanged bytes, with sizes of encoded_bytes() and errors of expected_error(). With a mask plane: rotated with a
/// plane, and the unchanged bytes. Throws Error as encoded_bytes() does.
std::vector<PlanChoice> plan_choices(DType dtype, std::int64_t elems, bool mask_plane = false);

/// Returns the plan of least variance within the budget.
///
/// The plan is proven optimal if `optimal` is true. The solver takes the linear relaxation, and then searches over the
/// items that the relaxation leaves open; the search ends after a fixed number of steps (some 10 ms). It remains
/// undecided for sums of nearly equal trade-offs that miss the budget by a few bytes: then `optimal` is false, and
/// `least_variance` says how much better another plan could be. In any case, `variance` exceeds the least by no more
/// than what one step of one item to its next choice is worth.
///
/// Deterministic. Among choices of equal error an item gets the cheapest, and among equal ones the first: an item of
/// sensitivity 0 costs as little as it can.
///
/// Throws Error(invalid_plan) for items or budgets out of range, and Error(budget_too_small), which says how much is
/// needed, if the cheapest choices exceed the budget.
Plan solve_plan(std::span<const PlanItem> items, const Budget& budget);

/// Returns the variance if all items had the same bits (or the nearest fewer that they have) at so many bytes in total:
/// the baseline for a plan. Between two widths it mixes both, whatever the sensitivities, in the share that meets the
/// bytes. Throws Error(invalid_plan) as solve_plan() does.
double uniform_variance(std::span<const PlanItem> items, TotalBytes bytes);

}  // namespace actzip
