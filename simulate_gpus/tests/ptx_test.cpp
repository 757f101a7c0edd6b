// The PTX engine without CUDA: values, waits, variables.
#include "ptx_kernels.hpp"

namespace {

TEST_F(PtxTest, ValuesOfBlocksOnSeveralThreads) {
  const auto values = run(kernel("mul.lo.u32 %r2, %i, 3; st.global.u32 [%place], %r2; ret;"),
                          {.grid = {8}, .block = {32}, .threads = 4});
  for (std::uint32_t k = 0; k < 256; ++k) EXPECT_EQ(values[k], 3 * k);
}

TEST_F(PtxTest, ALaneWaitsForAnother) {
  // A lock that each lane takes by itself: the others spin meanwhile.
  const auto values = run(kernel(R"(
AGAIN: atom.global.cas.b32 %r2, [%out+512], 0, 1;
setp.ne.u32 %p1, %r2, 0; @%p1 bra AGAIN;
ld.volatile.global.u32 %r3, [%out+516]; add.u32 %r3, %r3, 1; st.volatile.global.u32 [%out+516], %r3;
membar.gl; atom.global.exch.b32 %r4, [%out+512], 0;
ret;)"),
                          {.grid = {2}, .block = {48}, .threads = 2});
  EXPECT_EQ(values[129], 96U);
}

TEST_F(PtxTest, ABlockWaitsForALaterOne) {
  const auto values = run(kernel(R"(
setp.ne.u32 %p1, %r0, 0; @%p1 bra OTHER;
AGAIN: ld.volatile.global.u32 %r2, [%out+512]; setp.eq.u32 %p2, %r2, 0; @%p2 bra AGAIN;
st.global.u32 [%out], %r2; ret;
OTHER: mov.u32 %r3, 7; st.volatile.global.u32 [%out+512], %r3; ret;)"),
                          {.grid = {2}, .threads = 1});
  EXPECT_EQ(values[0], 7U);
}

TEST_F(PtxTest, AGridMeetsInACooperativeLaunch) {
  const std::string text = kernel(R"(
mov.u32 %r2, %nctaid.x; atom.global.add.u32 %r3, [%out+512], 1;
AGAIN: ld.acquire.gpu.global.u32 %r4, [%out+512]; setp.lt.u32 %p1, %r4, %r2; @%p1 bra AGAIN;
mov.u32 %r5, %envreg2; mov.u32 %r6, %envreg1; or.b32 %r5, %r5, %r6; setp.ne.u32 %p2, %r5, 0; selp.u32 %r7, 5, 9, %p2;
st.global.u32 [%place], %r7; ret;)");
  const auto values = run(text, {.grid = {100}, .cooperative = true, .threads = 1});
  for (std::size_t k = 0; k < 100; ++k) EXPECT_EQ(values[k], 5U);
}

TEST_F(PtxTest, NamesWithinABlockHideOthers) {
  const auto values = run(kernel(R"(mov.u32 %r2, 5; bra AGAIN; mov.u32 %r2, 9; AGAIN:
{.reg.b32 %r2; .reg.v2.b32 %v; mov.u32 %r2, 7; bra AGAIN; mov.u32 %r2, 8; AGAIN: mov.v2.b32 %v, {%r2, %i}; st.global.u32 [%out+8], %v.x;}
st.global.u32 [%out], %r2; ret;)"),
                          {});
  EXPECT_EQ(values[0], 5U);
  EXPECT_EQ(values[2], 7U);
}

TEST_F(PtxTest, LanesOfAWarpMeetAtDifferentPlaces) {
  const auto values = run(kernel(R"(
and.b32 %r2, %i, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra EVEN;
bar.warp.sync 0xffffffff; mov.u32 %r3, 1; bra JOIN;
EVEN: bar.warp.sync 0xffffffff; mov.u32 %r3, 2;
JOIN: st.global.u32 [%place], %r3; ret;)"),
                          {.block = {32}});
  EXPECT_EQ(values[0], 2U);
  EXPECT_EQ(values[31], 1U);
}

TEST_F(PtxTest, GroupsOfAWarpVoteByThemselves) {
  const auto values = run(kernel(R"(
setp.lt.u32 %p1, %i, 16; selp.b32 %r2, 0xffff, 0xffff0000, %p1; setp.eq.u32 %p2, %i, 3;
vote.sync.any.pred %p3, %p2, %r2; selp.u32 %r3, 1, 0, %p3; st.global.u32 [%place], %r3; ret;)"),
                          {.block = {32}});
  EXPECT_EQ(values[15], 1U);
  EXPECT_EQ(values[16], 0U);
}

TEST_F(PtxTest, PairsOfHalvesAreComparedEachByItself) {
  const auto values = run(kernel(R"(
mov.b32 %r2, 0x3C003C00; mov.b32 %r3, 0x40003C00; set.eq.u32.f16x2 %r4, %r2, %r3; set.eq.f16x2.f16x2 %r5, %r2, %r3;
st.global.v2.u32 [%out], {%r4, %r5}; ret;)"),
                          {});
  EXPECT_EQ(values[0], 0xFFFFU);
  EXPECT_EQ(values[1], 0x3C00U);
}

TEST_F(PtxTest, AddressesOf32BitsWrap) {
  const auto values = run(kernel(R"(
.shared .b32 s[2]; mov.u32 %r2, 6; st.shared.u32 [s], %r2; mov.u32 %r3, s; sub.u32 %r3, %r3, 4;
ld.shared.u32 %r4, [%r3+4]; st.global.u32 [%out], %r4; ret;)"),
                          {});
  EXPECT_EQ(values[0], 6U);
}

TEST_F(PtxTest, VariablesBeginWithAddressesAndKeepTheirAlignment) {
  const auto values =
      run(kernel(R"(
ld.global.u64 %l1, [second]; ld.u32 %r2, [%l1]; mov.u64 %l2, wide; ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%l2];
mov.s32 %r7, -7 / 2; st.global.v4.u32 [%out], {%r2, %r6, %r7, %r7}; ret;)",
                 ".global .b32 one[3] = {1, 2, 3}; .global .u64 second = generic(one)+8;\n"
                 ".global .align 16 .b32 wide[6] = {4, 5, 6, 7, 8, 9};\n"),
          {});
  EXPECT_EQ(values[0], 3U);
  EXPECT_EQ(values[1], 7U);
  EXPECT_EQ(static_cast<std::int32_t>(values[2]), -3);
}

TEST_F(PtxTest, AResultThatNobodyWantsGoesNowhere) {
  const auto values =
      run(kernel("mov.u32 %r2, 5; add.u32 _, %r2, %r2; st.global.u32 [%place], %r2; ret;"),
          {.block = {32}});
  EXPECT_EQ(values[31], 5U);
}

TEST_F(PtxTest, KnowsItsCard) {
  const auto values =
      run(kernel("mov.u32 %r2, %nsmid; st.global.u32 [%out], %r2; ret;"), {.multiprocessors = 40});
  EXPECT_EQ(values[0], 40U);
}

TEST_F(PtxTest, VariablesAndAttributes) {
  const auto module =
      memory_.load(std::string(ptx_head) +
                   ".global .align 8 .b8 table[12] = {1, 2, 3};\n.const .f32 scale = "
                   "0f40000000;\n.global .u64 at = table+4;\n"
                   ".entry k(.param .u64 .ptr .global .align 16 a, .param .b8 b, .param .align 16 "
                   ".b8 c[24]) .maxntid "
                   "64, 2, 1\n{ .shared .b32 s[5]; .local .b8 l[100]; ret; }\n");
  EXPECT_EQ(module->variable("table").bytes, 12U);
  EXPECT_TRUE(module->variable("scale").is_constant);
  const auto place = [&](const char* name) {
    return memory_.find(module->variable(name).address).host +
           (module->variable(name).address - memory_.find(module->variable(name).address).begin);
  };
  std::uint64_t pointer = 0;
  std::memcpy(&pointer, place("at"), 8);
  EXPECT_EQ(pointer, module->variable("table").address + 4);
  EXPECT_EQ(std::to_integer<int>(place("table")[2]), 3);
  const ptx::Attributes found = module->attributes("k");
  EXPECT_EQ(found.parameters.size(), 3U);
  EXPECT_EQ(found.parameters[2].offset, 16U);
  EXPECT_EQ(found.parameter_bytes, 40U);
  EXPECT_EQ(found.static_shared_bytes, 20U);
  EXPECT_EQ(found.local_bytes, 100U);
  EXPECT_EQ(found.max_threads, 128U);
  EXPECT_EQ(found.ptx_version, 78U);
  EXPECT_EQ(found.target, 90U);
  EXPECT_THROW(static_cast<void>(module->attributes("other")), ptx::Error);
}

TEST_F(PtxTest, WhatALaunchTouches) {
  std::vector<ptx::Touched> touched;
  run(kernel("setp.lt.u32 %p1, %i, 4; @%p1 ret; st.global.u32 [%place], %i; ret;"),
      {.block = {16}, .touched = &touched});
  ASSERT_EQ(touched.size(), 1U);
  EXPECT_EQ(touched[0].begin, out_.begin + 16);
  EXPECT_EQ(touched[0].end, out_.begin + 64);
  EXPECT_TRUE(touched[0].written);
  EXPECT_FALSE(touched[0].read);
}

TEST_F(PtxTest, NothingIsLeftInMemory) {
  const std::size_t before = memory_.count();
  run(kernel("ret;", ".global .b32 x[100];\n.const .b32 y;\n"), {.cooperative = true});
  EXPECT_EQ(memory_.count(), before + 1);  // the results
}

}  // namespace
