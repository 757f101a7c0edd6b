// SPDX-License-Identifier: MIT
//
// What every message of this library is made with: texts cut to a length, and user input quoted so
// that a megabyte, a NUL or an escape sequence cannot spoil the terminal that shows it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace use_gpu {

/// Of an error's message, and of any other text for a person, in bytes.
constexpr std::size_t k_longest_message = 400;

/// The text, cut to at most `most` bytes and then ending in "...", never inside a UTF-8 character.
std::string clipped(std::string_view text, std::size_t most);

/// The text in double quotes, unprintable bytes as \xNN, clipped to about 40 characters.
std::string in_quotes(std::string_view text);

}  // namespace use_gpu
