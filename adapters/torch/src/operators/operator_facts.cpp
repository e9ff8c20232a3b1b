#include "operators/operator_facts.hpp"

#include <c10/util/BFloat16-math.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/convert.hpp"

namespace actzip::torch::facts {

namespace {

/// The tensor at `position`, if it is safe to ask for its sizes; null otherwise.
const c10::TensorImpl* sized(const Call& call, int position) {
  const c10::TensorImpl* const tensor = call.tensor(position);
  return tensor != nullptr && has_plain_sizes(*tensor) ? tensor : nullptr;
}

/// 0 if the size is not known.
std::int64_t size_along(const Call& call, int position, double dimension) {
  const c10::TensorImpl* const tensor = sized(call, position);
  if (tensor == nullptr || tensor->dim() == 0) return 0;
  const auto d = static_cast<std::int64_t>(dimension);
  return tensor->size(d < 0 ? d + tensor->dim() : d);
}

/// Number of elements in the input's last `dimensions` dimensions: the bound of a pooling index. 0 if unknown.
std::int64_t window(const Call& call, int dimensions) {
  const c10::TensorImpl* const input = sized(call, 0);
  if (input == nullptr || input->dim() < dimensions) return 0;
  std::int64_t elems = 1;
  for (std::int64_t d = input->dim() - dimensions; d < input->dim(); ++d) elems *= input->size(d);
  return elems;
}

/// Returns the next number of type T, below or above `limit`. A limit that T cannot represent is returned as it is; the
/// policy notices that.
template <class T>
float next_number(float limit, float towards) {
  const T own(limit);
  return static_cast<float>(own) == limit ? static_cast<float>(std::nextafter(own, T(towards))) : limit;
}

float neighbour(double limit, const c10::TensorImpl* tensor, double towards) {
  const auto number = static_cast<float>(limit);
  const auto to = static_cast<float>(towards);
  const auto type = tensor != nullptr ? tensor->dtype().toScalarType() : c10::ScalarType::Undefined;
  if (type == c10::ScalarType::Half) return next_number<c10::Half>(number, to);
  if (type == c10::ScalarType::BFloat16) return next_number<c10::BFloat16>(number, to);
  return next_number<float>(number, to);
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Sets an interval that includes its limits: it reaches to the numbers next to them. A NaN is outside. One bit is not
/// enough if a finite limit has no finite neighbour, or if there is no limit at all.
void include_limits(const Call& call, double lower, double upper, OperatorFacts& facts) {
  const c10::TensorImpl* const tensor = call.tensor(0);
  facts.interval = {neighbour(lower, tensor, -kInfinity), neighbour(upper, tensor, kInfinity), MaskSide::off};
  const bool has_lower = std::isfinite(facts.interval.lower);
  const bool has_upper = std::isfinite(facts.interval.upper);
  facts.asks_one_bit =
      (has_lower || has_upper) && has_lower == std::isfinite(lower) && has_upper == std::isfinite(upper);
}

/// A tensor as a limit has one limit per element.
bool has_tensors(const Call& call) { return call.tensor(1) != nullptr || call.tensor(2) != nullptr; }

}  // namespace

void two_limits(const Call& call, const Call* /*outer*/, SlotCode /*slot*/, OperatorFacts& facts) {
  facts.interval = {static_cast<float>(call.numbers[1]), static_cast<float>(call.numbers[2])};
  // Here an infinite value is outside an infinite limit.
  facts.asks_one_bit = std::isfinite(facts.interval.lower) && std::isfinite(facts.interval.upper);
}

void lower_limit(const Call& call, const Call* /*outer*/, SlotCode /*slot*/, OperatorFacts& facts) {
  facts.interval.lower = static_cast<float>(call.numbers[1]);
  facts.asks_one_bit = std::isfinite(facts.interval.lower);
}

void zero_limit(const Call& /*call*/, const Call* /*outer*/, SlotCode /*slot*/, OperatorFacts& facts) {
  facts.interval.nan = MaskSide::off;
}

void lower_and_upper(const Call& call, const Call* /*outer*/, SlotCode /*slot*/, OperatorFacts& facts) {
  include_limits(call, call.is_absent(1) ? -kInfinity : call.numbers[1],
                 call.is_absent(2) ? kInfinity : call.numbers[2], facts);
  if (has_tensors(call)) facts.asks_one_bit = false;
}

void least(const Call& call, const Call* /*outer*/, SlotCode /*slot*/, OperatorFacts& facts) {
  include_limits(call, call.numbers[1], kInfinity, facts);
  if (has_tensors(call)) facts.asks_one_bit = false;
}

void greatest(const Call& call, const Call* /*outer*/, SlotCode /*slot*/, OperatorFacts& facts) {
  include_limits(call, -kInfinity, call.numbers[1], facts);
  if (has_tensors(call)) facts.asks_one_bit = false;
}

void near_zero(const Call& call, const Call* /*outer*/, SlotCode /*slot*/, OperatorFacts& facts) {
  include_limits(call, -call.numbers[1], call.numbers[1], facts);
}

void dropout_factor(const Call& /*call*/, const Call* outer, SlotCode /*slot*/, OperatorFacts& facts) {
  if (outer != nullptr) facts.factor = 1.0F / static_cast<float>(1.0 - outer->numbers[1]);
}

void other_factor(const Call& call, const Call* /*outer*/, SlotCode slot, OperatorFacts& facts) {
  const c10::TensorImpl* const other = slot.value == 0 || slot.value == 1 ? sized(call, 1 - slot.value) : nullptr;
  if (other != nullptr) facts.meets_elems = other->numel();
  facts.meets_itself = other != nullptr && call.tensor(0) == call.tensor(1);
  // One factor per row, as in a hand-written norm: small rows are scaled up.
  if (other != nullptr && size_along(call, 1 - slot.value, -1) == 1) facts.row_elems = size_along(call, slot.value, -1);
  facts.meets_parameter = call.parameter != nullptr;
}

void exponent(const Call& call, const Call* /*outer*/, SlotCode /*slot*/, OperatorFacts& facts) {
  facts.exponent = static_cast<float>(call.numbers[1]);
  facts.row_elems = size_along(call, 0, -1);  // a hand-written norm may divide rows by their mean square
}

void row_width(const Call& call, const Call* /*outer*/, SlotCode /*slot*/, OperatorFacts& facts) {
  facts.row_elems = size_along(call, 0, -1);
}

void row_along_dimension(const Call& call, const Call* /*outer*/, SlotCode /*slot*/, OperatorFacts& facts) {
  const c10::TensorImpl* const input = sized(call, 0);
  const auto dimension = static_cast<std::int64_t>(call.numbers[1]);
  const bool is_last = input != nullptr && (dimension == -1 || dimension + 1 == input->dim());
  if (is_last) facts.row_elems = size_along(call, 0, -1);
}

void operand_width(const Call& call, const Call* /*outer*/, SlotCode slot, OperatorFacts& facts) {
  facts.row_elems = size_along(call, slot.value, -1);
}

void channel_elems(const Call& call, const Call* /*outer*/, SlotCode /*slot*/, OperatorFacts& facts) {
  const c10::TensorImpl* const input = sized(call, 0);
  const std::int64_t channels = input != nullptr && input->dim() > 1 ? input->size(1) : 0;
  facts.row_elems = channels > 0 ? input->numel() / channels : 0;
}

void group_elems(const Call& call, const Call* /*outer*/, SlotCode /*slot*/, OperatorFacts& facts) {
  const auto number = [&](std::size_t position) { return static_cast<std::int64_t>(call.numbers[position]); };
  const std::int64_t groups = number(6);
  facts.row_elems = groups > 0 ? number(4) / groups * number(5) : 0;
}

void three_limits(const Call& /*call*/, const Call* /*outer*/, SlotCode /*slot*/, OperatorFacts& facts) {
  facts.interval = {-3.0F, 3.0F, MaskSide::off};
}

void rows_of_table(const Call& call, const Call* /*outer*/, SlotCode /*slot*/, OperatorFacts& facts) {
  facts.index_bound = size_along(call, 0, 0);
}

void rows_of_bags(const Call& call, const Call* outer, SlotCode slot, OperatorFacts& facts) {
  if (slot.value < SlotCode::kResult) rows_of_table(call, outer, slot, facts);
}

void size_along_dimension(const Call& call, const Call* /*outer*/, SlotCode /*slot*/, OperatorFacts& facts) {
  facts.index_bound = size_along(call, 0, call.numbers[1]);
}

void any_dimension(const Call& call, const Call* /*outer*/, SlotCode /*slot*/, OperatorFacts& facts) {
  const c10::TensorImpl* const tensor = sized(call, 0);
  for (std::int64_t d = 0; tensor != nullptr && d < tensor->dim(); ++d) {
    facts.index_bound = std::max(facts.index_bound, tensor->size(d));
  }
}

void plane_elems(const Call& call, const Call* /*outer*/, SlotCode /*slot*/, OperatorFacts& facts) {
  facts.index_bound = window(call, 2);
}

void volume_elems(const Call& call, const Call* /*outer*/, SlotCode /*slot*/, OperatorFacts& facts) {
  facts.index_bound = window(call, 3);
}

}  // namespace actzip::torch::facts
