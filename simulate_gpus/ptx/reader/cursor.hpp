// Where a reader is in its tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ptx/reader/tokens.hpp"

namespace simulate_gpus::ptx {

class Cursor {
 public:
  explicit Cursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  bool at_end() const { return at_ >= tokens_.size(); }
  int line() const;
  std::string_view peek(std::size_t ahead = 0) const;  // empty at the end
  std::string_view next();
  bool take(std::string_view text);
  void expect(std::string_view text);
  void skip_past(std::string_view text);
  void skip_line();
  void skip_braces();                                       // from { to its }
  [[noreturn]] void fail(const std::string& why) const;     // not valid
  [[noreturn]] void refuse(const std::string& what) const;  // valid, and not offered

  // Integers, with operators and parentheses: -(3 + 4 * 2).
  std::uint64_t integer();
  bool at_integer() const;

 private:
  std::uint64_t sum(int level, int depth);
  std::uint64_t factor(int depth);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

// The value of a word such as 12, 0x1F, 0b11, 017, 12U; whether it is one.
bool read_integer(std::string_view word, std::uint64_t& value);

}  // namespace simulate_gpus::ptx
