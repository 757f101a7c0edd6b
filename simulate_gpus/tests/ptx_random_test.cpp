// Kernels and texts that nobody wrote.
#include <random>

#include "ptx_kernels.hpp"

namespace {

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

// A value that is kept in a register of its own while others are computed, and what a loop has kept from its first round.
std::string random_values(std::mt19937& random, int depth, int& labels) {
  const auto below = [&](int count) {
    return std::uniform_int_distribution<int>(0, count - 1)(random);
  };
  std::string text;
  for (int count = 1 + below(4); count > 0; --count) {
    const std::string number = std::to_string(++labels), kept = "%t" + number;
    const std::string from[] = {"%r10", "%r12", "%tid.x", "%ntid.x"};
    const std::string write =
        "xor.b32 " + kept + ", " + from[below(4)] + ", " + std::to_string(below(999)) + ";\n";
    const std::string read =
        "add.u32 %r" + std::to_string(10 + below(4)) + ", %r11, " + kept + ";\n";
    if (depth == 0 || below(3) != 0) {
      text += write + (depth == 0 ? "" : random_values(random, depth - 1, labels)) + read;
    } else {
      const std::string later = std::to_string(++labels);
      text += "and.b32 %t" + later + ", %r10, 3; setp.eq.u32 %p1, 0, 0;\nK" + number +
              ": @!%p1 bra K" + later + ";\n" + write + "K" + later + ":\n" + read +
              random_values(random, 0, labels) + "setp.ne.u32 %p1, 0, 0;\n" +
              "setp.eq.u32 %p2, %t" + later + ", 0; sub.u32 %t" + later + ", %t" + later +
              ", 1; @!%p2 bra K" + number + ";\n";
    }
  }
  return text;
}

// Two writes of each register, at the begin and behind the end, keep it from sharing its place and from being steady.
TEST_F(PtxTest, RegistersThatShareAPlaceAreAsThoseThatDoNot) {
  std::mt19937 random(2027);
  for (int k = 0; k < 100; ++k) {
    int labels = 0;
    const std::string body = random_values(random, 3, labels);
    std::string writes;
    for (int t = 1; t <= labels; ++t) writes += "add.u32 %t" + std::to_string(t) + ", %r10, 1;\n";
    const std::string begin = ".reg .b32 %t<" + std::to_string(labels + 1) +
                              ">;\nmov.u32 %r10, %i; mul.lo.u32 %r11, %i, 77; mov.u32 %r12, %i; "
                              "mov.u32 %r13, 5;\n";
    const std::string end = body +
                            "add.u32 %r10, %r10, %r11; xor.b32 %r12, %r12, %r13; "
                            "add.u32 %r10, %r10, %r12; st.global.u32 [%place], %r10; ret;\n";
    const ptx::Launch launch{.grid = {3}, .block = {40}, .threads = 1};
    EXPECT_EQ(run(kernel(begin + end), launch), run(kernel(begin + writes + end + writes), launch))
        << begin + end;
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
