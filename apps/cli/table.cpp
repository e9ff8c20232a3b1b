#include "table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace actzip::cli {

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(column.title.size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row.at(i).size());
  }

  std::string out;
  const auto add_line = [&](const auto& cell_at) {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const bool right = columns_[i].align == Align::right;
      fmt::format_to(std::back_inserter(out), fmt::runtime(right ? "{:>{}}  " : "{:<{}}  "), cell_at(i), widths[i]);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  };
  add_line([&](std::size_t i) { return columns_[i].title; });
  add_line([&](std::size_t i) { return std::string(widths[i], '-'); });
  for (const auto& row : rows_) add_line([&](std::size_t i) { return row[i]; });
  return out;
}

}  // namespace actzip::cli
