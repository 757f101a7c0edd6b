// What becomes of faulty kernels, and what is refused.
#include "ptx_kernels.hpp"

namespace {

TEST_F(PtxTest, FaultsNameTheirThread) {
  const std::string write = "setp.ne.u32 %p1, %i, 5; @%p1 bra LAST; ";
  auto [kind, text] = failure(kernel(write + "st.global.u32 [%out+100000], %i; LAST: ret;"));
  EXPECT_EQ(kind, ptx::Kind::illegal_address);
  EXPECT_NE(text.find("kernel k, block (0, 0, 0), thread (5, 0, 0): a write of 4 bytes"),
            std::string::npos)
      << text;
  std::tie(kind, text) = failure(kernel(write + "st.global.u32 [%out+2], %i; LAST: ret;"));
  EXPECT_EQ(kind, ptx::Kind::misaligned_address) << text;
  std::tie(kind, text) = failure(kernel(write + "trap; LAST: ret;"));
  EXPECT_EQ(kind, ptx::Kind::launch_failure) << text;
  std::tie(kind, text) =
      failure(kernel("mov.u64 %l1, c; st.u32 [%l1], %i; ret;", ".const .u32 c = 5;\n"));
  EXPECT_EQ(kind, ptx::Kind::launch_failure) << text;
  std::tie(kind, text) =
      failure(kernel(".shared .b32 s[4]; mov.u32 %r2, s; mad.lo.u32 %r2, %i, 4, %r2; st.shared.u32 "
                     "[%r2], %i; ret;"));
  EXPECT_EQ(kind, ptx::Kind::illegal_address);
  EXPECT_NE(text.find("thread (4, 0, 0)"), std::string::npos) << text;
}

TEST_F(PtxTest, WhatNoThreadComesToDoesNotFail) {
  // Nothing in that load differs by block, and yet it is not done before the first one.
  const auto values = run(kernel(R"(
mov.u32 %r2, 3; st.global.u32 [%place], %r2; setp.eq.u32 %p1, %i, 99; @%p1 bra OUTSIDE; ret;
OUTSIDE: mov.u64 %l1, 4096; ld.param.u32 %r3, [%l1]; st.global.u32 [%place], %r3; ret;)"),
                          {.block = {32}});
  EXPECT_EQ(values[31], 3U);
}

TEST_F(PtxTest, FaultsNameTheLineOfTheSource) {
  const std::string text = failure(std::string(".version 7.8\n.target sm_90\n.address_size "
                                               "64\n.file 1 \"/some/where/program.cu\"\n") +
                                   ".entry k(.param .u64 out) {\n.loc 1 42 3\ntrap;\n}\n")
                               .second;
  EXPECT_NE(text.find("(PTX line 7, program.cu:42)"), std::string::npos) << text;
}

TEST_F(PtxTest, EndedThreadsDoNotHoldABarrierUp) {
  const auto values =
      run(kernel("setp.ge.u32 %p1, %i, 40; @%p1 exit; bar.sync 0; st.global.u32 [%place], 1; ret;"),
          {.block = {100}});
  EXPECT_EQ(values[39], 1U);
  EXPECT_EQ(values[40], 0U);
}

TEST_F(PtxTest, AnEndlessWaitEnds) {
  auto [kind, text] = failure(
      kernel("setp.lt.u32 %p1, %i, 32; @%p1 bra ONE; bar.sync 1; ret; ONE: bar.sync 2; ret;"),
      {.block = {64}});
  EXPECT_EQ(kind, ptx::Kind::timeout);
  EXPECT_NE(text.find("bar.sync waits for threads that never come"), std::string::npos) << text;
}

TEST_F(PtxTest, AnEndlessLoopEnds) {
  ptx::Launch launch = {.block = {64}, .endless_after = 200'000};
  auto [kind, text] = failure(kernel("AGAIN: ld.volatile.global.u32 %r2, [%out]; setp.eq.u32 %p1, "
                                     "%r2, 0; @%p1 bra AGAIN; ret;"),
                              launch);
  EXPECT_EQ(kind, ptx::Kind::timeout);
  EXPECT_NE(text.find("an endless loop"), std::string::npos) << text;
  // A long loop that counts is none.
  const auto values = run(kernel("mov.u32 %r2, 0; AGAIN: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, "
                                 "%r2, 900000; @%p1 bra AGAIN; st.global.u32 [%out], %r2; ret;"),
                          launch);
  EXPECT_EQ(values[0], 900000U);
}

TEST_F(PtxTest, PrintfAndAssert) {
  const std::string outside =
      ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
      ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, "
      ".param .b64 e);\n"
      ".global .b8 format[40] = {37, 51, 100, 124, 37, 45, 54, 46, 50, 102, 124, 37, 108, 108, "
      "120, 124, 37, 115, 124, 37, 37, 10, 0};\n"
      ".global .b8 word[4] = {97, 98, 99, 0};\n";
  const std::string print = R"(.local .align 8 .b8 stack[32];
mov.u64 %l0, stack; cvta.local.u64 %l0, %l0; st.u32 [%l0], 42; mov.f64 %l1, 0d3FF8000000000000; st.f64 [%l0+8], %l1;
mov.u64 %l2, 255; st.u64 [%l0+16], %l2; mov.u64 %l3, word; st.u64 [%l0+24], %l3; mov.u64 %l4, format;
{ .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], %l4; st.param.b64 [b], %l0; call (r), vprintf, (a, b); }
)";
  run(kernel(print + "ret;", outside), {});
  EXPECT_EQ(memory_.output, " 42|1.50  |ff|abc|%\n");
  const std::string fails =
      R"({ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e; mov.u64 %l3, word;
st.param.b64 [a], %l3; st.param.b64 [b], %l3; st.param.b32 [c], 18; st.param.b64 [d], %l3; st.param.b64 [e], 1;
call __assertfail, (a, b, c, d, e); }
)";
  memory_.output.clear();
  EXPECT_EQ(failure(kernel(print + fails + "ret;", outside), {}).first, ptx::Kind::assertion);
  EXPECT_EQ(memory_.errors,
            "abc:18: abc: block: [0,0,0], thread: [0,0,0] Assertion `abc` failed.\n");
  EXPECT_EQ(memory_.output, " 42|1.50  |ff|abc|%\n") << "what was printed before stays";
}

TEST_F(PtxTest, WhatDoesNotExistIsInvalid) {
  const auto is_invalid = [&](const std::string& text) {
    EXPECT_EQ(failure(text).first, ptx::Kind::invalid_ptx) << text.substr(0, 300);
  };
  is_invalid(kernel(".reg .b8 %b<3>; add.u8 %b0, %b1, %b2; ret;"));
  is_invalid(kernel("@%r5 mov.u32 %r2, 1; ret;"));
  is_invalid(kernel(".local .b8 y[68719476736]; ret;"));
  is_invalid(kernel("mov.b32 %r1, " + std::string(100'000, '{')));
  is_invalid(std::string(ptx_head) + ".visible .entry k(.param .b8 x[68719476736]) { ret; }");
}

TEST_F(PtxTest, CopiesReadNoMoreThanTheyAreGiven) {
  // The last 8 of the 1,016 bytes; what follows is in no allocation.
  const auto values = run(kernel(R"(
.shared .align 16 .b32 s[4]; mov.u32 %r2, s; mov.u32 %r3, 8; mov.u32 %r5, 7; st.global.u32 [%out+1012], %r5;
cp.async.cg.shared.global [%r2], [%out+1008], 16, %r3; cp.async.wait_all; ld.shared.u32 %r4, [s+4]; ld.shared.u32 %r6, [s+12];
st.global.v2.u32 [%out], {%r4, %r6}; ret;)"),
                          {}, 254);
  EXPECT_EQ(values[0], 7U);
  EXPECT_EQ(values[1], 0U);
}

TEST_F(PtxTest, WhatIsNotOfferedIsRefusedBeforeAnythingRuns) {
  const char* const refused[] = {
      "wgmma.fence.sync.aligned;",      "tcgen05.wait::ld.sync.aligned;",
      "cp.async.bulk.commit_group;",    "tex.1d.v4.s32.s32 {%r1, %r2, %r3, %r4}, [t, {%r5}];",
      "barrier.cluster.arrive;",        "call (%r2), %l1, (%r3), proto;",
      "add.unknown.u32 %r1, %r2, %r3;", "mov.u32 %r1, %unknown;"};
  for (const char* const instruction : refused) {
    const auto [kind, text] =
        failure(kernel(std::string("st.global.u32 [%place], 1;\n") + instruction + "\nret;"));
    EXPECT_EQ(kind, ptx::Kind::not_offered) << instruction;
    EXPECT_NE(text.find("kernel k: "), std::string::npos) << text;
    EXPECT_NE(text.find("(PTX line 10)"), std::string::npos) << text;
    EXPECT_LE(text.size(), 400U);
    std::uint32_t first = 0;
    std::memcpy(&first, out_.host, 4);
    EXPECT_EQ(first, 0U) << instruction;
  }
  EXPECT_EQ(failure(kernel("ret;", ".global .texref t;\n")).first, ptx::Kind::not_offered);
  const std::string recursive =
      ".func f(.param .b32 x)\n{\n.param .b32 y;\ncall f, (y);\nret;\n}\n";
  EXPECT_NE(failure(kernel("{ .param .b32 x; call f, (x); } ret;", recursive))
                .second.find("recursion of f"),
            std::string::npos);
}

}  // namespace
