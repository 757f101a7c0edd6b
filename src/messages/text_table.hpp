// SPDX-License-Identifier: MIT
//
// The tables that this library prints: columns as wide as their widest cell, two spaces apart.
// Columns with only numbers, or sizes like "1.50 GiB", are right-aligned.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace use_gpu::detail {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);
  /// A row of as many cells as the header has.
  void add_row(std::vector<std::string> cells);
  /// Each row on a line of its own, the header first; no blanks at the ends of lines.
  friend std::ostream& operator<<(std::ostream& out, const TextTable& table);

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace use_gpu::detail
