// JSON from files that nobody vouches for.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace actzip::data {

inline constexpr int kMostJsonDepth = 64;

/// Parses a text or a stream. nlohmann's parser takes any depth, but what copies or prints a value recurses: a file of
/// brackets alone would overflow the stack. So values lie at most kMostJsonDepth deep. Throws Json::parse_error, or
/// std::runtime_error for what is deeper.
template <class Json = nlohmann::json, class Input>
Json parse_shallow_json(Input&& input) {
  const auto check = [](int depth, typename Json::parse_event_t /*event*/, Json& /*value*/) {
    if (depth <= kMostJsonDepth) return true;
    throw std::runtime_error(fmt::format("values nested deeper than {}", kMostJsonDepth));
  };
  return Json::parse(std::forward<Input>(input), check);
}

}  // namespace actzip::data
