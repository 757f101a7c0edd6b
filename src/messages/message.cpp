// SPDX-License-Identifier: MIT
#include "messages/message.hpp"

namespace use_gpu {

std::string clipped(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  std::size_t end = most - 3;
  const auto continues = [&](std::size_t i) {
    return (static_cast<unsigned char>(text[i]) >> 6) == 2;
  };
  while (end > 0 && continues(end)) --end;
  return std::string(text.substr(0, end)) + "...";
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t k_most = 40;
  constexpr char k_hex[] = "0123456789abcdef";
  std::string printable;
  for (const char c : text.substr(0, k_most)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      printable += c;
    } else {
      printable += {'\\', 'x', k_hex[byte >> 4], k_hex[byte & 15]};
    }
  }
  return '"' + printable + (text.size() > k_most ? "...\"" : "\"");
}

}  // namespace use_gpu
