// Plain text tables.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace actzip::cli {

class Table {
 public:
  enum class Align : bool { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// Requires one cell for each column.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  /// Formats the table: columns are as wide as their widest cell and two blanks apart.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace actzip::cli
