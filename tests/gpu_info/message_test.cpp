// SPDX-License-Identifier: MIT
#include "gpu_info/message.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace use_gpu::detail {
namespace {

TEST(Clipped, LeavesAloneWhatFits) {
  EXPECT_EQ(clipped("", 3), "");
  EXPECT_EQ(clipped("abcd", 4), "abcd");
}

TEST(Clipped, EndsInDotsWithinTheLength) { EXPECT_EQ(clipped("abcdefgh", 7), "abcd..."); }

TEST(Clipped, NeverCutsAUtf8Character) {
  const std::string text = "ab\xc3\xa4\xc3\xb6\xc3\xbc";  // ab and three umlauts of two bytes
  EXPECT_EQ(clipped(text, 7), "ab\xc3\xa4...");
  EXPECT_EQ(clipped(text, 6), "ab...");
  EXPECT_EQ(clipped("\xf0\x9f\x98\x80\xf0\x9f\x98\x80", 7), "\xf0\x9f\x98\x80...");
  EXPECT_EQ(clipped(std::string(10, '\x80'), 5), "...") << "not UTF-8: nothing to keep whole";
}

TEST(Clipped, KeepsTheEndThatIsAskedFor) {
  EXPECT_EQ(clipped("abcdefghijkl", 9, 2), "abcd...kl");
  EXPECT_EQ(clipped("abcdefg\xc3\xa4", 8, 1), "abcd...") << "no half character";
}

TEST(Fitted, LeavesAloneWhatFits) {
  const std::string text = std::string(396, 'x') + " end";
  EXPECT_EQ(fitted(text), text);
}

TEST(Fitted, CutsTheLongestWordsFirst) {
  const auto text = fitted("load: /" + std::string(1000, 'p') + ": it is damaged; " +
                           std::string(60, 'n') + " must be saved again.");
  EXPECT_LE(text.size(), 400U);
  EXPECT_TRUE(text.starts_with("load: /ppp"));
  EXPECT_TRUE(
      text.ends_with("p: it is damaged; " + std::string(60, 'n') + " must be saved again."));
}

TEST(Fitted, CutsLongListsAsOneWord) {
  std::string shape = "[1";
  for (int i = 0; i < 200; ++i) shape += ", 1";
  const auto text = fitted("x is float32" + shape + "] on cpu, y on cuda:0; move one of them.");
  EXPECT_LE(text.size(), 400U);
  EXPECT_TRUE(text.starts_with("x is float32[1, 1, 1"));
  EXPECT_TRUE(text.ends_with(", 1, 1] on cpu, y on cuda:0; move one of them.")) << text;
}

TEST(Fitted, KeepsBeginAndEndOfManyShortWords) {
  std::string middle;
  for (int i = 0; i < 1000; ++i) middle += "\xc3\xa4\xc3\xb6 ";
  const auto text = fitted("What was asked " + middle + "and what to do.");
  EXPECT_LE(text.size(), 400U);
  EXPECT_GE(text.size(), 396U);
  EXPECT_TRUE(text.starts_with("What was asked \xc3"));
  EXPECT_NE(text.find("..."), std::string::npos);
  EXPECT_NE((static_cast<unsigned char>(text[text.find("...") + 3]) >> 6), 2)
      << "a whole character";
  EXPECT_TRUE(text.ends_with("\xb6 and what to do."));
}

TEST(InQuotes, ShowsUnprintableBytesAsHexadecimal) {
  using std::string_view_literals::operator""sv;
  EXPECT_EQ(in_quotes("cuda:0"), "\"cuda:0\"");
  EXPECT_EQ(in_quotes("a\0\x1b\xff"sv), "\"a\\x00\\x1b\\xff\"");
}

TEST(InQuotes, ClipsLongTexts) {
  EXPECT_EQ(in_quotes(std::string(1000, 'x')), '"' + std::string(40, 'x') + "...\"");
}

TEST(Printable, ReplacesControlCharacters) {
  EXPECT_EQ(printable("a\nb\x1b[1m\x7f\xc3\xa4"), "a?b?[1m?\xc3\xa4");
}

TEST(NumberRanges, ShortensRuns) {
  EXPECT_EQ(number_ranges({}), "none");
  EXPECT_EQ(number_ranges({3}), "3");
  EXPECT_EQ(number_ranges({0, 1}), "0, 1");
  EXPECT_EQ(number_ranges({0, 2, 3, 4, 7, 8}), "0, 2 to 4, 7, 8");
}

TEST(Hex, GivesTwoDigitsForEachByte) {
  EXPECT_EQ(hex({}), "");
  EXPECT_EQ(hex(std::as_bytes(std::span("\x07\xfa", 2))), "07fa");
}

std::string printed_table(const TextTable& rows) {
  std::ostringstream text;
  print_table(text, rows);
  return text.str();
}

TEST(TextTable, AlignsTextToTheLeftAndNumbersToTheRight) {
  EXPECT_EQ(
      printed_table(
          {{"name", "bytes", "device"}, {"0.weight", "12", "cpu"}, {"b", "1234567", "cuda:0"}}),
      "name        bytes  device\n"
      "0.weight       12  cpu\n"
      "b         1234567  cuda:0\n");
}

TEST(TextTable, PrintsItsHeaderAlone) {
  EXPECT_EQ(printed_table({{"name", "bytes"}}), "name  bytes\n");
}

TEST(TextTable, KeepsEmptyCells) {
  EXPECT_EQ(printed_table({{"a", "b"}, {"", "x"}, {"y", ""}}), "a  b\n   x\ny\n");
}

}  // namespace
}  // namespace use_gpu::detail
