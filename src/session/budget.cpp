#include "actzip/budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include "actzip/error.hpp"

namespace actzip {

namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr std::array kUnits = {
    Unit{"b", 1.0},      Unit{"kb", 1e3},     Unit{"mb", 1e6},     Unit{"gb", 1e9},     Unit{"tb", 1e12},
    Unit{"kib", 0x1p10}, Unit{"mib", 0x1p20}, Unit{"gib", 0x1p30}, Unit{"tib", 0x1p40},
};

[[noreturn]] void fail_budget(std::string_view text) {
  throw Error(ErrorCode::invalid_spec,
              fmt::format("session: budget '{}' (allowed: bytes above 0 such as 4GiB or 500MB, a share of what is held "
                          "without actzip such as 0.25 or 25%, or auto)",
                          text));
}

std::string lower_without_spaces(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c != ' ') result += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return result;
}

}  // namespace

std::optional<MemoryBudget> parse_budget(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const std::string plain = lower_without_spaces(text);
  if (plain == "auto") return WhatIsLeft{};
  double number = 0.0;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), number);
  const std::string_view unit(end, static_cast<std::size_t>(plain.data() + plain.size() - end));
  if (error != std::errc{} || !(number > 0.0) || number > 0x1p60) fail_budget(text);
  if (unit == "%" || (unit.empty() && number <= 1.0)) {
    const double share = unit.empty() ? number : number / 100.0;
    if (share > 1.0) fail_budget(text);
    return HeldShare{share};
  }
  const auto found = std::ranges::find(kUnits, unit.empty() ? std::string_view("b") : unit, &Unit::name);
  if (found == kUnits.end()) fail_budget(text);
  const double bytes = std::floor(number * found->bytes);
  if (!(bytes >= 1.0) || bytes > 0x1p60) fail_budget(text);
  return HeldBytes{static_cast<std::size_t>(bytes)};
}

}  // namespace actzip
