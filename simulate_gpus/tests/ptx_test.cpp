// The PTX engine without CUDA: values, faults, refusals, damaged texts.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ptx_memory.hpp"

namespace ptx = simulate_gpus::ptx;

namespace {

constexpr const char* head = ".version 7.8\n.target sm_90\n.address_size 64\n";

// A kernel with the address of its results in %out and the number of its thread, over all blocks, in %i.
std::string kernel(const std::string& body, const std::string& outside = "") {
  return head + outside +
         ".visible .entry k(.param .u64 out)\n{\n"
         ".reg .b64 %out, %place, %l<9>; .reg .b32 %i, %r<20>; .reg .pred %p<5>; .reg .f32 %f<5>;\n"
         "ld.param.u64 %out, [out]; mov.u32 %i, %tid.x; mov.u32 %r0, %ctaid.x; mov.u32 %r1, "
         "%ntid.x;\n"
         "mad.lo.u32 %i, %r0, %r1, %i; mad.wide.u32 %place, %i, 4, %out;\n" +
         body + "\n}\n";
}

class PtxTest : public testing::Test {
 protected:
  ~PtxTest() override {
    if (out_.begin != 0) memory_.release(out_.begin);
  }

  std::vector<std::uint32_t> run(const std::string& text, ptx::Launch launch,
                                 std::size_t results = 256) {
    if (out_.begin != 0) memory_.release(out_.begin);
    out_ = memory_.allocate(4 * results);
    std::memset(out_.host, 0, 4 * results);
    if (launch.kernel.empty()) launch.kernel = "k";
    launch.parameters.resize(8);
    std::memcpy(launch.parameters.data(), &out_.begin, 8);
    memory_.load(text)->launch(launch);
    std::vector<std::uint32_t> values(results);
    std::memcpy(values.data(), out_.host, 4 * results);
    return values;
  }

  // The kind and the text of what a launch throws.
  std::pair<ptx::Kind, std::string> failure(const std::string& text,
                                            ptx::Launch launch = {.block = {32}}) {
    try {
      run(text, std::move(launch));
    } catch (const ptx::Error& error) {
      return {error.kind(), error.what()};
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }

  TestMemory memory_;
  ptx::Allocation out_ = {};
};

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

TEST_F(PtxTest, VariablesAndAttributes) {
  const auto module =
      memory_.load(std::string(head) +
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

// Statements of a random kernel: sums and shifts of four registers, branches and loops that lanes take differently.
std::string random_statements(std::mt19937& random, int depth, int& labels) {
  const auto below = [&](int count) {
    return std::uniform_int_distribution<int>(0, count - 1)(random);
  };
  const auto reg = [&] { return "%r" + std::to_string(10 + below(4)); };
  std::string text;
  for (int count = 2 + below(4); count > 0; --count) {
    const std::string label = "L" + std::to_string(++labels);
    switch (depth > 0 ? below(5) : below(2)) {
      case 0:
        text += "mad.lo.u32 " + reg() + ", " + reg() + ", " + std::to_string(1 + below(99)) + ", " +
                reg() + ";\n";
        break;
      case 1:
        text += "shf.l.wrap.b32 " + reg() + ", " + reg() + ", " + reg() + ", " +
                std::to_string(below(32)) + ";\n";
        break;
      case 2:  // one side, or the other
        text += "and.b32 %r3, " + reg() + ", " + std::to_string(1 + below(7)) +
                "; setp.eq.u32 %p1, %r3, 0; @%p1 bra " + label + ";\n" +
                random_statements(random, depth - 1, labels) + "bra " + label + "_END;\n" + label +
                ":\n" + random_statements(random, depth - 1, labels) + label + "_END:\n";
        break;
      case 3:  // a loop of its own length in each lane; its counter is an outer loop's too, so only without one within
        text += "and.b32 %r4, " + reg() + ", 7;\n" + label + ":\n" +
                random_statements(random, 0, labels) +
                "setp.eq.u32 %p2, %r4, 0; sub.u32 %r4, %r4, 1; @!%p2 bra " + label + ";\n";
        break;
      default:  // lanes that end
        text += "and.b32 %r3, " + reg() +
                ", 63; setp.eq.u32 %p1, %r3, 1; @%p1 st.global.u32 [%place], %r10; @%p1 exit;\n";
    }
  }
  return text;
}

TEST_F(PtxTest, DivergentKernelsAreAsOneThreadAtATime) {
  std::mt19937 random(2026);
  for (int k = 0; k < 100; ++k) {
    int labels = 0;
    const std::string body = random_statements(random, 3, labels);
    const std::string text = kernel(
        "mov.u32 %r10, %i; mul.lo.u32 %r11, %i, 77; xor.b32 %r12, %i, 21; not.b32 %r13, %i;\n" +
        body +
        "add.u32 %r10, %r10, %r11; xor.b32 %r12, %r12, %r13; add.u32 %r10, %r10, %r12; "
        "st.global.u32 [%place], %r10; ret;");
    const auto together = run(text, {.block = {96}, .threads = 1});
    EXPECT_EQ(together, run(text, {.grid = {96}, .block = {1}, .threads = 1})) << text;
  }
}

// A text that is damaged at random either fails with an Error or runs.
std::string damaged(std::string text, std::mt19937& random) {
  const auto below = [&](std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(random);
  };
  for (std::size_t changes = 1 + below(4); changes > 0 && text.size() > 100; --changes) {
    const std::size_t at = below(text.size()), other = below(text.size()), length = 1 + below(12);
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(32 + below(95));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(other, length));
        break;
      case 3:
        text.insert(at, std::string(1, ";,.{}[]()%:-+0"[below(14)]));
        break;
      case 4: {
        const std::size_t digit = text.find_first_of("0123456789", at);
        if (digit != std::string::npos) text[digit] = static_cast<char>('0' + below(10));
        break;
      }
      default:
        text[at] = static_cast<char>(below(256));
    }
  }
  return text;
}

TEST_F(PtxTest, DamagedTexts) {
  const std::string text = kernel(R"(
.shared .align 8 .b8 s[64]; .local .align 4 .b8 stack[16];
and.b32 %r2, %i, 3; TARGETS: .branchtargets A, B, C, C; brx.idx %r2, TARGETS;
A: mov.u32 %r3, s; st.shared.v2.u32 [%r3+8], {%i, %r2}; bar.sync 0; bra C;
B: st.local.u32 [stack], %i; cvt.rn.f32.u32 %f1, %i; fma.rn.ftz.f32 %f2, %f1, %f1, 0f3F800000; cvt.rzi.s32.f32 %r4, %f2;
C: setp.lt.and.u32 %p1|%p2, %i, 20, %p1; @%p1 shfl.sync.bfly.b32 %r5|%p3, %i, 1, 31, 0xffffffff;
{ .param .b32 x; .param .b32 y; st.param.b32 [x], %i; call (y), f, (x); ld.param.b32 %r6, [y]; }
atom.global.add.u32 %r7, [%out+800], 1; ld.const.u32 %r8, [c]; mov.b64 %l1, {%r8, %r7}; lop3.b32 %r9, %r1, %r2, %r3, 0x96;
ret;)",
                                  ".const .align 4 .u32 c[3] = {1, 2, 0xff};\n.func (.param .b32 "
                                  "y) f(.param .b32 x) { .reg .b32 %t<2>; ld.param.b32 %t1, [x]; "
                                  "add.s32 %t1, %t1, -(2 + 3); st.param.b32 [y], %t1; ret; }\n");
  run(text, {.block = {8}});
  std::mt19937 random(59);
  int ran = 0, refused = 0;
  for (int k = 0; k < 1000; ++k) {
    try {
      run(damaged(text, random), {.block = {8}, .endless_after = 200'000});
      ++ran;
    } catch (const ptx::Error& error) {
      EXPECT_FALSE(std::string(error.what()).empty());
      ++refused;
    }
  }
  EXPECT_GT(refused, 400);
  EXPECT_GT(ran, 10);
}

}  // namespace
