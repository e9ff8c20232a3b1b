// Parses the names of generated data: "shapes" or "shapes:500".
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>

#include "error.hpp"

namespace actzip::data {

/// Returns the requested count if `where` is `name` or `name`:COUNT, and nothing if it is something else. Throws
/// DataError for an invalid count.
inline std::optional<std::size_t> generated_count(std::string_view where, std::string_view name,
                                                  std::size_t by_default) {
  constexpr std::size_t kMost = 100'000'000;
  if (where == name) return by_default;
  if (!where.starts_with(name) || where[name.size()] != ':') return std::nullopt;
  const std::string_view digits = where.substr(name.size() + 1);
  std::size_t count = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (error != std::errc{} || end != digits.data() + digits.size() || count < 1 || count > kMost) {
    throw DataError(fmt::format("'{}' (allowed: {} or {}:COUNT with a count from 1 to {})", where, name, name, kMost));
  }
  return count;
}

}  // namespace actzip::data
