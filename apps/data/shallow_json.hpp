// Parses JSON from untrusted files.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace actzip::data {

inline constexpr int kMostJsonDepth = 64;

/// Parses a text or a stream with values nested at most kMostJsonDepth deep. nlohmann's parser accepts any depth, but
/// copying or printing a value recurses, so a file full of brackets would overflow the stack. Throws Json::parse_error,
/// or std::runtime_error for deeper nesting.
template <class Json = nlohmann::json, class Input>
Json parse_shallow_json(Input&& input) {
  const auto check = [](int depth, typename Json::parse_event_t /*event*/, Json& /*value*/) {
    if (depth <= kMostJsonDepth) return true;
    throw std::runtime_error(fmt::format("values nested deeper than {}", kMostJsonDepth));
  };
  return Json::parse(std::forward<Input>(input), check);
}

}  // namespace actzip::data
