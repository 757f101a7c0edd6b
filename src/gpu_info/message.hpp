// SPDX-License-Identifier: MIT
//
// Texts for users. They are limited in length, and user input in them is escaped, so that a megabyte,
// a NUL or an escape sequence cannot corrupt the terminal.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace use_gpu::detail {

/// The limit for error messages and other texts for users, in bytes.
constexpr std::size_t k_longest_message = 400;

/// The text in at most `most` bytes, with "..." for what is missing before its last `end` ones;
/// never cut inside a UTF-8 character.
std::string clipped(std::string_view text, std::size_t most, std::size_t end = 0);

/// The text in at most 400 bytes, in which the remedy at its end stays: the longest words, which
/// are names, paths and lists, lose their middle first, and then the text itself.
std::string fitted(std::string_view text);

/// The text's first 40 bytes in double quotes, unprintable ones as \xNN.
std::string in_quotes(std::string_view text);

/// The text with "?" for each control character, to protect the terminal, and for each byte above `most`.
std::string printable(std::string text, unsigned char most = 0xff);

/// Ascending numbers in short: "0, 2 to 5". "none" for none.
std::string number_ranges(const std::vector<int>& numbers);

/// Two hexadecimal digits for each byte.
std::string hex(std::span<const std::byte> bytes);

/// Rows of as many cells each, the header first.
using TextTable = std::vector<std::vector<std::string>>;

/// Prints each row on a line of its own: columns as wide as their widest cell, two spaces apart,
/// those with only numbers, or sizes like "1.50 GiB", right-aligned; no blanks at the ends of lines.
std::ostream& print_table(std::ostream& out, const TextTable& rows);

}  // namespace use_gpu::detail
