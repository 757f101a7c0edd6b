// SPDX-License-Identifier: MIT
#include "messages/text_table.hpp"

#include <algorithm>
#include <ostream>
#include <utility>

namespace use_gpu::detail {
namespace {

// Also a size, "1.50 GiB", and "-" where there is none.
bool is_number(const std::string& text) {
  const auto unit = text.find_first_not_of("0123456789.");
  return unit == text.npos || text == "-" || text.substr(unit) == " B" ||
         (text.size() == unit + 4 && text.ends_with("iB"));
}

}  // namespace

TextTable::TextTable(std::vector<std::string> header) : rows_{std::move(header)} {}

void TextTable::add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::ostream& operator<<(std::ostream& out, const TextTable& table) {
  const auto& rows = table.rows_;
  const auto columns = rows.front().size();
  std::vector<std::size_t> width(columns);
  std::vector<bool> right(columns, rows.size() > 1);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      width[c] = std::max(width[c], rows[r][c].size());
      if (r > 0 && !is_number(rows[r][c])) right[c] = false;
    }
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < columns; ++c) {
      const std::string padding(width[c] - row[c].size(), ' ');
      line += (c == 0 ? "" : "  ") + (right[c] ? padding + row[c] : row[c] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  }
  return out;
}

}  // namespace use_gpu::detail
