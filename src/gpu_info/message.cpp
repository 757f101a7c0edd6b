// SPDX-License-Identifier: MIT
#include "gpu_info/message.hpp"

#include <algorithm>
#include <ostream>

namespace use_gpu::detail {
namespace {

// Whether it is a byte of a UTF-8 character after the first.
bool continues_character(char byte) { return (static_cast<unsigned char>(byte) >> 6) == 2; }

// The text with each word cut to that length. A list, "[2, 3]", is one word.
std::string with_short_words(std::string_view text, std::size_t most) {
  std::string shorter;
  while (true) {
    auto end = text.find(' ');
    while (end != text.npos && end > 0 && text[end - 1] == ',') end = text.find(' ', end + 1);
    shorter += clipped(text.substr(0, end), most, most / 3);
    if (end == text.npos) return shorter;
    shorter += ' ';
    text.remove_prefix(end + 1);
  }
}

// Also a size, "1.50 GiB", and "-" where there is none.
bool is_number(const std::string& text) {
  const auto unit = text.find_first_not_of("0123456789.");
  return unit == text.npos || text == "-" || text.substr(unit) == " bytes" ||
         (text.size() == unit + 4 && text.ends_with("iB"));
}

}  // namespace

std::string clipped(std::string_view text, std::size_t most, std::size_t end) {
  if (text.size() <= most) return std::string(text);
  auto cut = most - 3 - end;
  while (cut > 0 && continues_character(text[cut])) --cut;
  auto rest = text.size() - end;
  while (rest < text.size() && continues_character(text[rest])) ++rest;
  return std::string(text.substr(0, cut)) + "..." + std::string(text.substr(rest));
}

std::string fitted(std::string_view text) {
  std::string shorter(text);
  for (auto most = k_longest_message; shorter.size() > k_longest_message && most > 40; most /= 2)
    shorter = with_short_words(text, most);
  return clipped(shorter, k_longest_message, 150);
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t k_most = 40;
  std::string shown;
  for (const char c : text.substr(0, k_most)) {
    const bool is_printable = c >= 0x20 && c < 0x7f;
    shown += is_printable ? std::string(1, c) : "\\x" + hex({{static_cast<std::byte>(c)}});
  }
  return '"' + shown + (text.size() > k_most ? "...\"" : "\"");
}

std::string printable(std::string text, unsigned char most) {
  const auto is_hidden = [=](unsigned char c) { return c < 0x20 || c == 0x7f || c > most; };
  std::replace_if(text.begin(), text.end(), is_hidden, '?');
  return text;
}

std::string number_ranges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(numbers[i]);
    if (last > i) text += (last > i + 1 ? " to " : ", ") + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text.empty() ? "none" : clipped(text, 80);
}

std::string hex(std::span<const std::byte> bytes) {
  constexpr char k_digits[] = "0123456789abcdef";
  std::string text;
  for (const auto byte : bytes) {
    text += {k_digits[std::to_integer<int>(byte >> 4)],
             k_digits[std::to_integer<int>(byte & std::byte{15})]};
  }
  return text;
}

std::ostream& print_table(std::ostream& out, const TextTable& rows) {
  std::vector<std::string> lines(rows.size());
  for (std::size_t column = 0; column < rows.front().size(); ++column) {
    std::size_t width = 0;
    bool right = rows.size() > 1;
    for (const auto& row : rows) {
      width = std::max(width, row[column].size());
      if (&row != &rows.front() && !is_number(row[column])) right = false;
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::string& cell = rows[i][column];
      const std::string padding(width - cell.size(), ' ');
      lines[i] += (column == 0 ? "" : "  ") + (right ? padding + cell : cell + padding);
    }
  }
  for (const auto& line : lines) out << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  return out;
}

}  // namespace use_gpu::detail
