// SPDX-License-Identifier: MIT
//
// What every message of this library is made with: texts cut to a length, and user input quoted so
// that a megabyte, a NUL or an escape sequence cannot spoil the terminal that shows it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace use_gpu::detail {

/// Of an error's message, and of any other text for a person, in bytes.
constexpr std::size_t k_longest_message = 400;

/// The text, cut to at most `most` bytes and then ending in "...", never inside a UTF-8 character.
std::string clipped(std::string_view text, std::size_t most);

/// The text in double quotes, unprintable bytes as \xNN, clipped to about 40 characters.
std::string in_quotes(std::string_view text);

/// The text with "?" for each control character, which could spoil the terminal that shows it.
std::string printable(std::string text);

/// Ascending numbers in short: "0, 2 to 5". "none" for none.
std::string number_ranges(const std::vector<int>& numbers);

/// Two hexadecimal digits for each byte.
std::string hex(std::span<const std::byte> bytes);

}  // namespace use_gpu::detail
