// PTX text as words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace simulate_gpus::ptx {

struct Token {
  std::string_view text;
  int line = 0;
};

// Words are made of letters, digits, `_ $ . %` and `::`; each begins anew at a dot if it begins with
// one; strings keep their quotes; any other character is a token.
// Throws: Error (invalid_ptx).
std::vector<Token> tokens_of(std::string_view text);

}  // namespace simulate_gpus::ptx
