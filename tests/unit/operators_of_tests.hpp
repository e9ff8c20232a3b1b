// A small operator table, like an adapter's for its framework. It maps the unit tests' sites, written as operator.slot,
// to their uses.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "actzip/policy.hpp"

namespace actzip::test {

inline Use use_of(std::string_view op, std::string_view slot) {
  using Row = std::pair<std::string_view, Use>;
  constexpr std::array kRows = {
      Row{"relu.result", Use::sign},
      Row{"hardtanh.self", Use::interval},
      Row{"leaky_relu.self", Use::interval},
      Row{"max_pool.self", Use::shape},
      Row{"max_pool.aux0", Use::pool_index},
      Row{"embedding.indices", Use::index},
      Row{"attention.query", Use::attention_query},
      Row{"attention.key", Use::attention_key},
      Row{"attention.value", Use::attention_value},
      Row{"attention.result", Use::attention_result},
      Row{"attention.aux0", Use::attention_statistics},
      Row{"bmm.self", Use::batched_operand},
      Row{"addmm.mat1", Use::linear_input},
      Row{"addmm.mat2", Use::linear_weight},
      Row{"mm.self", Use::linear_input},
      Row{"linear.input", Use::linear_input},
      Row{"convolution.input", Use::convolution_input},
      Row{"batch_norm.input", Use::batch_norm_input},
      Row{"batch_norm.aux0", Use::norm_statistics},
      Row{"layer_norm.input", Use::row_norm_input},
      Row{"gelu.self", Use::gelu_input},
      Row{"silu.self", Use::slope_input},
      Row{"tanh.result", Use::bounded_result},
      Row{"mul.self", Use::factor},
      Row{"div.other", Use::quotient},
      Row{"softmax.result", Use::softmax_result},
      Row{"log_softmax.result", Use::log_probabilities},
      Row{"amax.self", Use::comparison},
      Row{"mylib::relu.self", Use::foreign},
  };
  const std::string place = std::string(op) + '.' + std::string(slot);
  const auto found = std::ranges::find(kRows, place, &Row::first);
  return found == kRows.end() ? Use::unknown : found->second;
}

inline SiteKey site_key(std::string_view module, std::string_view op, std::string_view slot) {
  return {module, op, slot, 0, use_of(op, slot)};
}

}  // namespace actzip::test
