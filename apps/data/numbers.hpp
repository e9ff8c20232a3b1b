// Parses rows of numbers from text.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "error.hpp"

namespace actzip::data {

inline constexpr std::size_t kAnyCount = 0;

/// Appends the numbers of a line, separated by blanks, tabs or commas, and returns how many there are. For anything
/// that is not a number of this type, throws a DataError whose message begins with `place`.
template <class Number>
std::size_t append_row(std::string_view line, std::string_view place, std::vector<Number>& numbers) {
  constexpr std::string_view kBetween = " ,\t\r";
  std::size_t count = 0;
  while (true) {
    const std::size_t begin = line.find_first_not_of(kBetween);
    if (begin == std::string_view::npos) return count;
    line.remove_prefix(begin);
    Number number = {};
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
    const auto length = static_cast<std::size_t>(end - line.data());
    if (error != std::errc{} || (length < line.size() && kBetween.find(line[length]) == std::string_view::npos)) {
      throw DataError(fmt::format("{}: '{}' (expected: numbers)", place, line.substr(0, 60)));
    }
    line.remove_prefix(length);
    numbers.push_back(number);
    ++count;
  }
}

/// Returns the numbers of a line. Throws DataError also if `count` is given and there are more or fewer.
template <class Number>
std::vector<Number> parse_row(std::string_view line, std::string_view place, std::size_t count = kAnyCount) {
  std::vector<Number> numbers;
  append_row(line, place, numbers);
  if (count != kAnyCount && numbers.size() != count) {
    throw DataError(fmt::format("{}: '{}' (expected: {} numbers)", place, line.substr(0, 60), count));
  }
  return numbers;
}

}  // namespace actzip::data
