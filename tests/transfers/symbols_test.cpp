// SPDX-License-Identifier: MIT
//
// The source of symbols for builds without libdw, which knows exported functions only.
#include "transfers/symbols.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>

namespace use_gpu::detail {
namespace {

int local() { return 1; }

Frame frame_at(std::uintptr_t address) {
  const auto frames = loaded_symbols()(address);
  EXPECT_EQ(frames.size(), 1U);
  return frames.front();
}

TEST(SymbolsWithoutLibdw, NameAnExportedFunctionAndItsLibrary) {
  const auto frame = frame_at(reinterpret_cast<std::uintptr_t>(&std::rand) + 1);
  EXPECT_EQ(frame.function, "rand");
  EXPECT_EQ(frame.object, "libc.so.6");
  EXPECT_EQ(frame.offset, 1U);
  EXPECT_EQ(frame.line, 0);
}

TEST(SymbolsWithoutLibdw, GiveThePlaceInTheProgramOfAnyOther) {
  const auto frame = frame_at(reinterpret_cast<std::uintptr_t>(&local));
  EXPECT_EQ(frame.function, "");
  EXPECT_EQ(frame.object, "symbols_test");
  EXPECT_GT(frame.offset, 0U);
}

TEST(SymbolsWithoutLibdw, KnowNothingOfOtherMemory) {
  const auto frame = frame_at(1);
  EXPECT_EQ(frame.function + frame.object, "");
}

}  // namespace
}  // namespace use_gpu::detail
