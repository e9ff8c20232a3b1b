#include "actzip/use.hpp"

#include <algorithm>
#include <cstddef>

namespace actzip {

namespace {

struct Named {
  Use use;
  std::string_view name;
};

constexpr std::array<Named, kUses> kNames = {
    Named{Use::unknown, "unknown"},
    Named{Use::foreign, "foreign"},
    Named{Use::sign, "sign"},
    Named{Use::interval, "interval"},
    Named{Use::dropout_mask, "dropout_mask"},
    Named{Use::shape, "shape"},
    Named{Use::pool_index, "pool_index"},
    Named{Use::index, "index"},
    Named{Use::attention_query, "attention_query"},
    Named{Use::attention_key, "attention_key"},
    Named{Use::attention_operand, "attention_operand"},
    Named{Use::attention_value, "attention_value"},
    Named{Use::attention_result, "attention_result"},
    Named{Use::attention_statistics, "attention_statistics"},
    Named{Use::attention_mask, "attention_mask"},
    Named{Use::batched_operand, "batched_operand"},
    Named{Use::vector_operand, "vector_operand"},
    Named{Use::linear_input, "linear_input"},
    Named{Use::linear_weight, "linear_weight"},
    Named{Use::convolution_input, "convolution_input"},
    Named{Use::convolution_weight, "convolution_weight"},
    Named{Use::batch_norm_input, "batch_norm_input"},
    Named{Use::row_norm_input, "row_norm_input"},
    Named{Use::norm_statistics, "norm_statistics"},
    Named{Use::recurrent_input, "recurrent_input"},
    Named{Use::recurrent_state, "recurrent_state"},
    Named{Use::gelu_input, "gelu_input"},
    Named{Use::slope_input, "slope_input"},
    Named{Use::factor, "factor"},
    Named{Use::power_base, "power_base"},
    Named{Use::power_exponent, "power_exponent"},
    Named{Use::bounded_result, "bounded_result"},
    Named{Use::softmax_result, "softmax_result"},
    Named{Use::log_probabilities, "log_probabilities"},
    Named{Use::log_sum, "log_sum"},
    Named{Use::quotient, "quotient"},
    Named{Use::exponential_result, "exponential_result"},
    Named{Use::loss_operand, "loss_operand"},
    Named{Use::comparison, "comparison"},
    Named{Use::pole, "pole"},
    Named{Use::solver, "solver"},
    Named{Use::position, "position"},
    Named{Use::checkpoint_input, "checkpoint_input"},
};

constexpr bool are_in_order() {
  for (int i = 0; i < kUses; ++i) {
    if (kNames[static_cast<std::size_t>(i)].use != static_cast<Use>(i)) return false;
  }
  return true;
}
static_assert(are_in_order(), "names are looked up by place");

}  // namespace

std::string_view to_string(Use use) noexcept { return kNames[static_cast<std::size_t>(use)].name; }

std::optional<Use> parse_use(std::string_view text) noexcept {
  const auto found = std::ranges::find(kNames, text, &Named::name);
  return found == kNames.end() ? std::nullopt : std::optional(found->use);
}

bool enters_linearly(Use use) noexcept {
  return use == Use::linear_input || use == Use::linear_weight || use == Use::convolution_input ||
         use == Use::convolution_weight || use == Use::vector_operand;
}

std::array<Use, kUses> all_uses() noexcept {
  std::array<Use, kUses> uses{};
  std::ranges::transform(kNames, uses.begin(), &Named::use);
  return uses;
}

}  // namespace actzip
