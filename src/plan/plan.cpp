#include "actzip/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "actzip/codec.hpp"
#include "actzip/error.hpp"
#include "actzip/registry.hpp"
#include "plan/knapsack.hpp"

namespace actzip {

namespace {

constexpr double kMostNumber = 1e100;  ///< keeps products and their sums finite
constexpr std::int64_t kMostElems = std::int64_t{1} << 48;
constexpr std::size_t kMostBytes = std::size_t{1} << 54;
constexpr std::int64_t kMostWeight = std::int64_t{1} << 62;
constexpr int kMostBits = 64;

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, "plan: " + fmt::format(text, std::forward<Args>(args)...));
}

bool in_range(double number) { return number >= 0.0 && number <= kMostNumber; }  // false for NaN

void check_item(const PlanItem& item, std::size_t number) {
  if (item.elems < 1 || item.elems > kMostElems) {
    fail(ErrorCode::invalid_plan, "item {} has {} elements (allowed: 1 to 2^48)", number, item.elems);
  }
  if (!in_range(item.sensitivity)) {
    fail(ErrorCode::invalid_plan, "item {} has sensitivity {} (allowed: 0 to 1e100)", number, item.sensitivity);
  }
  if (item.choices.empty()) fail(ErrorCode::invalid_plan, "item {} has no choices (allowed: 1 or more)", number);
  for (const PlanChoice& choice : item.choices) {
    if (choice.bits < 0 || choice.bits > kMostBits) {
      fail(ErrorCode::invalid_plan, "item {} has a choice of {} bits (allowed: 0 to 64)", number, choice.bits);
    }
    if (choice.bytes > kMostBytes) {
      fail(ErrorCode::invalid_plan, "item {} has a choice of {} bytes (allowed: 0 to 2^54)", number, choice.bytes);
    }
    if (!in_range(choice.error)) {
      fail(ErrorCode::invalid_plan, "item {} has a choice of error {} (allowed: 0 to 1e100)", number, choice.error);
    }
  }
}

void check_budget(const Budget& budget) {
  if (const auto* bits = std::get_if<AverageBits>(&budget); bits != nullptr && !(bits->value >= 0.0)) {
    fail(ErrorCode::invalid_plan, "a budget of {} bits an element (allowed: 0 or more)", bits->value);
  }
}

double sum_of_elems(std::span<const PlanItem> items) {
  double sum = 0.0;
  for (const PlanItem& item : items) sum += static_cast<double>(item.elems);
  return sum;
}

/// In bits or in bytes, as the budget counts.
std::int64_t weight_of(const PlanItem& item, const PlanChoice& choice, const Budget& budget) {
  if (std::holds_alternative<AverageBits>(budget)) return item.elems * choice.bits;
  return static_cast<std::int64_t>(choice.bytes);
}

std::int64_t capacity_of(std::span<const PlanItem> items, const Budget& budget) {
  if (const auto* bytes = std::get_if<TotalBytes>(&budget)) {
    return static_cast<std::int64_t>(std::min(bytes->value, static_cast<std::size_t>(kMostWeight)));
  }
  // 2.3 bits for 10 elements are 23 bits, however the product is rounded.
  constexpr double kRoundUp = 1.0 + 1e-12;
  const double bits = std::get<AverageBits>(budget).value * sum_of_elems(items) * kRoundUp;
  return bits < static_cast<double>(kMostWeight) ? static_cast<std::int64_t>(bits) : kMostWeight;
}

/// Builds the problem. Checks items and budget here, so that the solver gets only valid numbers.
plan::Problem make_problem(std::span<const PlanItem> items, const Budget& budget) {
  plan::Problem problem;
  problem.first.reserve(items.size() + 1);
  problem.options.reserve(6 * items.size());
  std::int64_t lightest = 0;
  std::int64_t heaviest = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const PlanItem& item = items[i];
    check_item(item, i);
    std::int64_t least = kMostWeight;
    std::int64_t most = 0;
    for (const PlanChoice& choice : item.choices) {
      const std::int64_t weight = weight_of(item, choice, budget);
      problem.options.push_back({weight, item.sensitivity * choice.error});
      least = std::min(least, weight);
      most = std::max(most, weight);
    }
    problem.end_item();
    lightest += least;
    heaviest += most;
    if (heaviest > kMostWeight) fail(ErrorCode::invalid_plan, "the first {} items pass 2^62 bits or bytes", i + 1);
  }
  problem.capacity = capacity_of(items, budget);
  if (lightest <= problem.capacity) return problem;
  if (const auto* bits = std::get_if<AverageBits>(&budget)) {
    fail(ErrorCode::budget_too_small, "{} bits an element are too few: the cheapest choices need {:.6g}", bits->value,
         static_cast<double>(lightest) / sum_of_elems(items));
  }
  fail(ErrorCode::budget_too_small, "{} bytes are too few: the cheapest choices need {}", problem.capacity, lightest);
}

struct Total {
  double bytes = 0.0;
  double variance = 0.0;
};

/// Returns the choice with the most bits up to `bits`; if all have more, the one with the fewest.
const PlanChoice& choice_up_to(const PlanItem& item, int bits) {
  const auto nearer = [bits](const PlanChoice& a, const PlanChoice& b) {
    if ((a.bits <= bits) != (b.bits <= bits)) return a.bits <= bits;
    return a.bits <= bits ? a.bits > b.bits : a.bits < b.bits;
  };
  return *std::ranges::min_element(item.choices, nearer);
}

Total uniform_total(std::span<const PlanItem> items, int bits) {
  Total total;
  for (const PlanItem& item : items) {
    const PlanChoice& choice = choice_up_to(item, bits);
    total.bytes += static_cast<double>(choice.bytes);
    total.variance += item.sensitivity * choice.error;
  }
  return total;
}

}  // namespace

std::vector<PlanChoice> plan_choices(DType dtype, std::int64_t elems, bool mask_plane) {
  std::vector<CodecSpec> specs;
  for (int bits = 1; bits <= Rotated::kMostBits; ++bits)
    specs.emplace_back(Rotated{.bits = Bits(bits), .mask_plane = mask_plane});
  if (!mask_plane) specs.push_back(*spec_of_bits(Affine::kMostBits));
  specs.emplace_back(Copy{});

  std::vector<PlanChoice> choices;
  choices.reserve(specs.size());
  for (const CodecSpec& spec : specs) {
    choices.push_back({.spec = spec,
                       .bits = code_bits(spec, dtype),
                       .bytes = encoded_bytes(spec, dtype, elems),
                       .error = expected_error(spec)});
  }
  return choices;
}

Plan solve_plan(std::span<const PlanItem> items, const Budget& budget) {
  check_budget(budget);
  const plan::Problem problem = make_problem(items, budget);
  const plan::Solution solution = plan::solve(problem);

  Plan result;
  result.optimal = solution.optimal;
  double bits = 0.0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    result.choices.push_back(solution.picks[i] - problem.first[i]);
    const PlanChoice& choice = items[i].choices[result.choices.back()];
    result.variance += items[i].sensitivity * choice.error;
    result.bytes += choice.bytes;
    bits += static_cast<double>(choice.bits) * static_cast<double>(items[i].elems);
  }
  result.least_variance = std::min(solution.least_cost, result.variance);
  if (!items.empty()) result.average_bits = bits / sum_of_elems(items);
  return result;
}

double uniform_variance(std::span<const PlanItem> items, TotalBytes bytes) {
  std::set<int> widths;
  for (std::size_t i = 0; i < items.size(); ++i) {
    check_item(items[i], i);
    for (const PlanChoice& choice : items[i].choices) widths.insert(choice.bits);
  }
  if (widths.empty()) return 0.0;
  const auto wanted = static_cast<double>(bytes.value);
  Total below = uniform_total(items, *widths.begin());
  for (const int bits : widths) {
    if (below.bytes >= wanted) break;
    const Total above = uniform_total(items, bits);
    if (above.bytes >= wanted) {
      const double share = (wanted - below.bytes) / (above.bytes - below.bytes);
      return std::lerp(below.variance, above.variance, share);
    }
    below = above;
  }
  return below.variance;
}

}  // namespace actzip
