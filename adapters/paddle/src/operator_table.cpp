#include "operator_table.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace actzip::paddle_adapter {

namespace {

std::int64_t elems_of(const Shape& shape, int from = 0) {
  std::int64_t elems = 1;
  for (int d = from; d < shape.rank; ++d) elems *= shape.sizes[static_cast<std::size_t>(d)];
  return elems;
}

std::int64_t last_size(const Shape& shape) {
  return shape.rank > 0 ? shape.sizes[static_cast<std::size_t>(shape.rank) - 1] : 0;
}

void operand_width(const Call& /*call*/, const Shape& shape, std::uintptr_t /*memory*/, OperatorFacts& facts) {
  facts.row_elems = last_size(shape);
}

/// Hooks do not say whether channels come second or last. The larger size gives the shorter row, which is the safe
/// choice.
void channel_elems(const Call& call, const Shape& /*shape*/, std::uintptr_t /*memory*/, OperatorFacts& facts) {
  if (call.first.rank < 2) return;
  const std::int64_t channels = std::max(call.first.sizes[1], last_size(call.first));
  facts.row_elems = channels > 0 ? elems_of(call.first) / channels : 0;
}

/// Hooks do not say how many channels a group has either: at least one.
void plane_elems(const Call& call, const Shape& /*shape*/, std::uintptr_t /*memory*/, OperatorFacts& facts) {
  facts.row_elems = elems_of(call.first, 2);
}

void pool_bound(const Call& call, const Shape& /*shape*/, std::uintptr_t /*memory*/, OperatorFacts& facts) {
  facts.index_bound = elems_of(call.first, 2);
}

void between_0_and(float upper, OperatorFacts& facts) { facts.interval = {0.0F, upper, MaskSide::off}; }

void up_to_1(const Call& /*call*/, const Shape& /*shape*/, std::uintptr_t /*memory*/, OperatorFacts& facts) {
  between_0_and(1.0F, facts);
}

void up_to_6(const Call& /*call*/, const Shape& /*shape*/, std::uintptr_t /*memory*/, OperatorFacts& facts) {
  between_0_and(6.0F, facts);
}

/// In Paddle 0 passes. The limit is a normal number, because a processor that treats subnormal numbers as 0 still sees
/// it below 0; subnormal numbers below 0 pass, too.
void not_below_0(const Call& /*call*/, const Shape& /*shape*/, std::uintptr_t /*memory*/, OperatorFacts& facts) {
  facts.interval = {-std::numeric_limits<float>::min(), std::numeric_limits<float>::infinity(), MaskSide::off};
}

void squared(const Call& /*call*/, const Shape& /*shape*/, std::uintptr_t /*memory*/, OperatorFacts& facts) {
  facts.exponent = 2.0F;
}

/// When the first factor is saved, the second is not known yet. If the first is small enough to be broadcast, it is
/// assumed to be.
void other_factor(const Call& call, const Shape& shape, std::uintptr_t memory, OperatorFacts& facts) {
  constexpr std::int64_t kMayBeBroadcast = 1 << 14;
  if (call.slot == 0) {
    if (elems_of(shape) <= kMayBeBroadcast) facts.meets_elems = elems_of(shape) * kBroadcast;
    return;
  }
  facts.meets_elems = elems_of(call.first);
  facts.meets_itself = memory != 0 && memory == call.first_memory;
  facts.meets_parameter = call.first_is_parameter;
}

// constinit: the table is data; nothing runs before main().
constinit const std::array kRows = {
    // One bit.
    OperatorRow{.names = "relu relu_", .slots = {{{"out", Use::sign}}}},
    OperatorRow{.names = "relu6", .slots = {{{"out", Use::interval}}}, .facts = up_to_6},
    OperatorRow{.names = "hardsigmoid", .slots = {{{"out", Use::interval}}}, .facts = up_to_1},
    OperatorRow{.names = "leaky_relu leaky_relu_", .slots = {{{"x", Use::interval}}}, .facts = not_below_0},
    OperatorRow{.names = "dropout", .slots = {{{"mask", Use::dropout_mask}}}},

    // Shapes and positions.
    OperatorRow{.names = "avg.pool2d avg.pool3d", .slots = {{{"x", Use::shape}, {"out", Use::shape}}}},
    OperatorRow{.names = "max.pool2d max.pool3d", .slots = {{{"x", Use::comparison}, {"out", Use::comparison}}}},
    OperatorRow{.names = "max_pool2d_with_index max_pool3d_with_index",
                .slots = {{{"x", Use::shape}, {"mask", Use::pool_index}}},
                .facts = pool_bound},
    OperatorRow{.names = "embedding", .slots = {{{"x", Use::index}}}},
    OperatorRow{.names = "gather index_select", .slots = {{{"index", Use::index}}}},

    // Products of matrices, and convolutions.
    OperatorRow{.names = "linear.matmul linear",
                .slots = {{{"x", Use::linear_input}, {"weight", Use::linear_weight}}},
                .facts = operand_width},
    // Three or more dimensions: possibly q and k of attention.
    OperatorRow{.names = "batched.matmul bmm",
                .slots = {{{"x", Use::batched_operand}, {"y", Use::batched_operand}}},
                .facts = operand_width},
    OperatorRow{
        .names = "matmul", .slots = {{{"x", Use::linear_input}, {"y", Use::linear_weight}}}, .facts = operand_width},
    OperatorRow{.names = "addmm",
                .slots = {{{"input"}, {"x", Use::linear_input}, {"y", Use::linear_weight}}},
                .facts = operand_width},
    OperatorRow{.names = "mv dot", .slots = {{{"x", Use::vector_operand}, {"y", Use::vector_operand}}}},
    OperatorRow{.names = "conv2d conv3d depthwise_conv2d conv2d_transpose conv3d_transpose depthwise_conv2d_transpose",
                .slots = {{{"input", Use::convolution_input, 3}, {"filter", Use::convolution_weight, 3}}},
                .facts = channel_elems},

    // Norms, and layers with states.
    OperatorRow{.names = "batch_norm batch_norm_ sync_batch_norm_",
                .slots = {{{"x", Use::batch_norm_input, 2}}},
                .rest = {"statistics", Use::norm_statistics},
                .facts = channel_elems},
    OperatorRow{.names = "layer_norm",
                .slots = {{{"x", Use::row_norm_input, 2}}},
                .rest = {"statistics", Use::norm_statistics},
                .facts = operand_width},
    OperatorRow{.names = "instance_norm",
                .slots = {{{"x", Use::row_norm_input, 3}}},
                .rest = {"statistics", Use::norm_statistics},
                .facts = plane_elems},
    OperatorRow{.names = "group_norm",
                .slots = {{{"x", Use::row_norm_input, 3},
                           {"scale", Use::norm_statistics},
                           {"bias", Use::norm_statistics},
                           {"out", Use::row_norm_input, 3}}},
                .rest = {"statistics", Use::norm_statistics},
                .facts = plane_elems},
    OperatorRow{.names = "rnn", .slots = {{{"x", Use::recurrent_input, 3}}}, .rest = {"state", Use::recurrent_state}},

    // Element by element.
    OperatorRow{.names = "gelu", .slots = {{{"x", Use::gelu_input}}}},
    OperatorRow{.names = "silu swish mish hardswish softplus logsigmoid elu celu asinh",
                .slots = {{{"x", Use::slope_input}, {"out", Use::slope_input}}}},
    OperatorRow{
        .names = "multiply multiply_", .slots = {{{"x", Use::factor}, {"y", Use::factor}}}, .facts = other_factor},
    OperatorRow{.names = "square", .slots = {{{"x", Use::power_base}}}, .facts = squared},
    OperatorRow{.names = "tanh tanh_ sigmoid sigmoid_", .slots = {{{"out", Use::bounded_result}}}},
    OperatorRow{.names = "softmax softmax_", .slots = {{{"out", Use::softmax_result}}}},
    OperatorRow{.names = "log_softmax", .slots = {{{"out", Use::log_probabilities}}}},
    OperatorRow{.names = "logsumexp", .slots = {{{"x", Use::log_sum}, {"out", Use::log_sum}}}},
    OperatorRow{.names = "divide divide_",
                .slots = {{{"x", Use::quotient}, {"y", Use::quotient}, {"out", Use::quotient}}}},
    OperatorRow{.names = "log log2 log10", .slots = {{{"x", Use::quotient}}}},
    OperatorRow{.names = "sqrt", .slots = {{{"out", Use::quotient}}}},
    OperatorRow{.names = "exp exp_ expm1 rsqrt rsqrt_ reciprocal reciprocal_",
                .slots = {{{"out", Use::exponential_result}}}},
    OperatorRow{.names = "cross_entropy_with_softmax",
                .slots = {{{"label", Use::loss_operand}, {"softmax", Use::loss_operand}}},
                .writes_saved = true},
    OperatorRow{.names = "sigmoid_cross_entropy_with_logits huber_loss kldiv_loss nll_loss",
                .slots = {{{"x", Use::loss_operand}, {"y", Use::loss_operand}}}},
    OperatorRow{.names = "maximum minimum fmax fmin max min amax amin abs",
                .slots = {{{"x", Use::comparison}, {"y", Use::comparison}}}},
    OperatorRow{.names = "log1p bce_loss prod cumprod", .slots = {{{"x", Use::pole}, {"y", Use::pole}}}},
};

/// One meaning of an operator, and the functions of Paddle's that call the operator with it. A name that ends in '*'
/// matches all names with that beginning. The first entry that matches applies.
struct Meaning {
  std::string_view op;
  std::string_view functions;
  std::string_view name;
  int least_rank = 0;
};
constinit const std::array kMeanings = {
    Meaning{"matmul", "linear", "linear.matmul"},
    Meaning{"matmul", "*", "batched.matmul", 3},
    Meaning{"pool2d", "avg_pool* adaptive_avg_pool*", "avg.pool2d"},
    Meaning{"pool3d", "avg_pool* adaptive_avg_pool*", "avg.pool3d"},
    Meaning{"pool2d", "max_pool*", "max.pool2d"},
    Meaning{"pool3d", "max_pool*", "max.pool3d"},
};

/// Whether `name` is in a list separated by spaces.
bool in_list(std::string_view name, std::string_view list) {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(' '), list.size());
    const std::string_view entry = list.substr(0, end);
    if (entry.ends_with('*') ? name.starts_with(entry.substr(0, end - 1)) : name == entry) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace

std::span<const OperatorRow> operator_table() { return kRows; }

const OperatorRow* find_operator(std::string_view name) {
  const auto found = std::ranges::find_if(kRows, [&](const OperatorRow& row) { return in_list(name, row.names); });
  return found == kRows.end() ? nullptr : &*found;
}

Slot slot_of(const OperatorRow* row, int slot) {
  if (row == nullptr) return {};
  const auto place = static_cast<std::size_t>(slot);
  if (place < row->slots.size() && !row->slots[place].name.empty()) return row->slots[place];
  return row->rest;
}

bool has_meanings(std::string_view op) {
  return std::ranges::any_of(kMeanings, [&](const Meaning& meaning) { return meaning.op == op; });
}

std::string_view meaning_of(std::string_view op, std::string_view function, int rank) {
  for (const Meaning& meaning : kMeanings) {
    if (meaning.op == op && rank >= meaning.least_rank && in_list(function, meaning.functions)) return meaning.name;
  }
  return op;
}

}  // namespace actzip::paddle_adapter
