// SPDX-License-Identifier: MIT
#include "messages/text_table.hpp"

#include "support.hpp"

namespace use_gpu::detail {
namespace {

using test::printed;

TEST(TextTable, AlignsTextToTheLeftAndNumbersToTheRight) {
  TextTable table({"name", "bytes", "device"});
  table.add_row({"0.weight", "12", "cpu"});
  table.add_row({"b", "1234567", "cuda:0"});
  EXPECT_EQ(printed(table),
            "name        bytes  device\n"
            "0.weight       12  cpu\n"
            "b         1234567  cuda:0\n");
}

TEST(TextTable, PrintsItsHeaderAlone) {
  EXPECT_EQ(printed(TextTable({"name", "bytes"})), "name  bytes\n");
}

TEST(TextTable, KeepsEmptyCells) {
  TextTable table({"a", "b"});
  table.add_row({"", "x"});
  table.add_row({"y", ""});
  EXPECT_EQ(printed(table), "a  b\n   x\ny\n");
}

}  // namespace
}  // namespace use_gpu::detail
