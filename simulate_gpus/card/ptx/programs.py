"""Random programs in PTX, which nobody wrote: branches, loops, tables of branches and calls that lanes take differently, and where
all lanes of a warp or a block have come together what they exchange.

A program works on six registers of 32 bits, %w0 to %w5, and leaves its results in %r %s %t %u. All of it is specified: no lane
divides by 0, reads what another may write, or exchanges with lanes that are elsewhere.
"""

import numpy as np

PROGRAMS = 240
STATE = 6

INTEGER_OPERATIONS = [
    "add.u32 {d}, {a}, {b};", "sub.s32 {d}, {a}, {b};", "mul.lo.u32 {d}, {a}, {b};", "mul.hi.s32 {d}, {a}, {b};",
    "mad.lo.u32 {d}, {a}, {n}, {b};", "xor.b32 {d}, {a}, {b};", "and.b32 {d}, {a}, {big};", "or.b32 {d}, {a}, {n};", "not.b32 {d}, {a};",
    "lop3.b32 {d}, {a}, {b}, {c}, {byte};", "shf.l.wrap.b32 {d}, {a}, {b}, {n};", "shf.r.clamp.b32 {d}, {a}, {b}, {c};",
    "shl.b32 {d}, {a}, {small};", "shr.s32 {d}, {a}, {small};", "prmt.b32 {d}, {a}, {b}, {big};", "bfe.s32 {d}, {a}, {small}, {n};",
    "bfi.b32 {d}, {a}, {b}, {small}, 9;", "brev.b32 {d}, {a};", "popc.b32 {d}, {a};", "clz.b32 {d}, {a};", "bfind.u32 {d}, {a};",
    "min.s32 {d}, {a}, {b};", "max.u32 {d}, {a}, {b};", "abs.s32 {d}, {a};", "sad.u32 {d}, {a}, {b}, {c};", "dp4a.u32.s32 {d}, {a}, {b}, {c};",
    "vadd.s32.s32.s32.sat {d}, {a}, {b};", "add.sat.s32 {d}, {a}, {b};", "mad.hi.u32 {d}, {a}, {b}, {c};", "mul24.lo.s32 {d}, {a}, {b};",
    "or.b32 %w20, {b}, 1; div.u32 {d}, {a}, %w20;", "or.b32 %w20, {b}, 2; rem.u32 {d}, {a}, %w20;",
    "setp.lt.s32 %k6, {a}, {b}; selp.b32 {d}, {c}, {a}, %k6;", "set.gt.u32.s32 {d}, {a}, {b};", "slct.s32.s32 {d}, {a}, {b}, {c};",
    "setp.ge.and.u32 %k6|%k7, {a}, {b}, %k5; @%k6 add.u32 {d}, {d}, {n}; @%k7 xor.b32 {d}, {d}, {big}; mov.pred %k5, %k7;",
    "add.cc.u32 %w20, {a}, {b}; addc.u32 {d}, {c}, %w20;", "mad.lo.cc.u32 %w20, {a}, {b}, {c}; madc.hi.u32 {d}, {a}, {b}, %w20;",
    "mov.b64 %l8, {{{a}, {b}}}; shr.u64 %l8, %l8, {n}; mul.lo.u64 %l8, %l8, {big}; mov.b64 {{{d}, %w20}}, %l8; xor.b32 {d}, {d}, %w20;",
    "mul.wide.s32 %l8, {a}, {b}; cvt.u64.u32 %l9, {c}; add.u64 %l8, %l8, %l9; cvt.u32.u64 {d}, %l8;",
    "cvt.s32.s8 {d}, {a};", "cvt.u32.u16 {d}, {a};", "mov.b32 {{%h0, %h1}}, {a}; add.u16 %h0, %h0, %h1; mov.b32 {d}, {{%h1, %h0}};",
]
FLOAT_OPERATIONS = [  # of whole numbers, so that none is a NaN, whose bits are not specified
    "cvt.rn.f32.s32 %w20, {a}; cvt.rn.f32.u32 %w21, {b}; fma.rn.f32 {d}, %w20, %w21, %w21;",
    "cvt.rz.f32.s32 %w20, {a}; mul.rn.f32 %w20, %w20, 0f3E99999A; cvt.rzi.s32.f32 {d}, %w20;",
    "cvt.rn.f32.s32 %w20, {a}; or.b32 %w21, {b}, 1; cvt.rn.f32.s32 %w21, %w21; div.rn.f32 {d}, %w20, %w21;",
    "cvt.rn.f32.u32 %w20, {a}; sqrt.rn.f32 {d}, %w20;", "cvt.rp.f32.u32 %w20, {a}; sub.rm.f32 %w20, %w20, 0f4B000001; cvt.rni.s32.f32 {d}, %w20;",
    "cvt.rn.f32.s32 %w20, {a}; cvt.rn.f32.s32 %w21, {b}; min.f32 %w20, %w20, %w21; max.f32 {d}, %w20, 0fC47A0000;",
    "and.b32 %w20, {a}, 1023; cvt.rn.f16.u32 %h0, %w20; and.b32 %w20, {b}, 63; cvt.rn.f16.u32 %h1, %w20; fma.rn.f16 %h0, %h0, %h1, %h1; "
    "mov.b32 {d}, {{%h0, %h1}};",
    "cvt.rn.f64.s32 %l8, {a}; cvt.rn.f64.u32 %l9, {b}; fma.rn.f64 %l8, %l8, %l9, %l9; mov.b64 {{%w20, {d}}}, %l8; xor.b32 {d}, {d}, %w20;",
    "cvt.rn.f32.s32 %w20, {a}; cvt.rn.f32.u32 %w21, {b}; cvt.rn.bf16x2.f32 {d}, %w20, %w21;",
]
MEMORY_OPERATIONS = [  # an array of each lane
    "and.b32 %w20, {a}, 28; add.u32 %w20, %w20, %w41; st.local.u32 [%w20], {b};",
    "and.b32 %w20, {a}, 28; add.u32 %w20, %w20, %w41; ld.local.u32 {d}, [%w20];",
    "and.b32 %w20, {a}, 31; add.u32 %w20, %w20, %w41; st.local.u8 [%w20], {b}; ld.local.s8 {d}, [%w20];",
]
WARP_OPERATIONS = [
    "shfl.sync.idx.b32 {d}, {a}, {b}, 31, -1;", "shfl.sync.bfly.b32 {d}, {a}, {small}, 31, -1;", "shfl.sync.up.b32 {d}|%k6, {a}, {small}, 0, -1;",
    "shfl.sync.down.b32 {d}, {a}, {small}, 0x181f, -1;", "setp.lt.s32 %k6, {a}, {b}; vote.sync.ballot.b32 {d}, %k6, -1;",
    "and.b32 %w20, {a}, 3; match.any.sync.b32 {d}, %w20, -1;", "redux.sync.add.u32 {d}, {a}, -1;", "redux.sync.xor.b32 {d}, {a}, -1;",
    "redux.sync.min.s32 {d}, {a}, -1;", "setp.ne.u32 %k6, {a}, {b}; vote.sync.any.pred %k6, %k6, -1; selp.b32 {d}, {c}, {d}, %k6;",
]
BLOCK_OPERATIONS = [
    # each lane's value, read by another lane
    "shl.b32 %w20, %w40, 2; add.u32 %w20, %w20, %w42; st.shared.u32 [%w20], {a}; bar.sync 0; mad.lo.u32 %w21, %w40, {odd}, {n}; "
    "and.b32 %w21, %w21, 127; shl.b32 %w21, %w21, 2; add.u32 %w21, %w21, %w42; ld.shared.u32 {d}, [%w21]; bar.sync 0;",
    # sums of lanes that meet at 8 places
    "and.b32 %w20, %w40, 7; shl.b32 %w20, %w20, 2; add.u32 %w20, %w20, %w42; mov.u32 %w21, 0; st.shared.u32 [%w20], %w21; bar.sync 0; "
    "and.b32 %w21, {a}, 28; add.u32 %w21, %w21, %w42; red.shared.add.u32 [%w21], {b}; bar.sync 0; ld.shared.u32 {d}, [%w20]; bar.sync 0;",
    "setp.lt.s32 %k6, {a}, {b}; bar.red.popc.u32 {d}, 0, %k6;",
]
BEGIN = """\
.local .align 4 .b8 own_{name}[32]; .shared .align 4 .b8 common_{name}[512];
mov.u32 %w40, %tid.x; mov.u32 %w41, own_{name}; mov.u32 %w42, common_{name}; setp.ne.u32 %k5, %w40, 5;
mov.u32 %w0, %a; mov.u32 %w1, %b; mov.u32 %w2, %c; mov.u32 %w3, %d; add.u32 %w4, %a, %w40; mul.lo.u32 %w5, %b, 77;
st.local.v4.u32 [%w41], {{%w0, %w1, %w2, %w3}}; st.local.v4.u32 [%w41+16], {{%w4, %w5, %w40, %w0}};
"""
END = """
xor.b32 %r, %w0, %w4; add.u32 %s, %w1, %w5; mov.u32 %t, %w2; ld.local.u32 %u, [%w41+12]; add.u32 %u, %u, %w3;
"""
FUNCTION = """\
.func (.reg .b32 %result) mix_{name}(.reg .b32 %x, .reg .b32 %y)
{{
  .reg .pred %p; .reg .b32 %k;
  and.b32 %k, %y, 7; mov.u32 %result, %x;
AGAIN:
  setp.eq.u32 %p, %k, 0; @%p bra OUT;
  mad.lo.u32 %result, %result, 1103515245, 12345; sub.u32 %k, %k, 1;
  and.b32 %y, %result, 1; setp.eq.u32 %p, %y, 0; @%p ret;
  bra.uni AGAIN;
OUT:
  ret;
}}
"""


class Program:
    """One program; `depth` is how deep branches and loops may be within one another."""

    def __init__(self, number):
        self.name = f"program_{number}"
        self.random = np.random.RandomState(number)
        self.labels, self.counters = 0, 50
        self.body = BEGIN.format(name=self.name) + self.statements(depth=3, together=True) + END

    def below(self, limit):
        return int(self.random.randint(0, limit))

    def register(self):
        return f"%w{self.below(STATE)}"

    def pick(self, operations):
        return operations[self.below(len(operations))].format(
            d=self.register(), a=self.register(), b=self.register(), c=self.register(), n=1 + self.below(31), small=self.below(31),
            byte=self.below(256), big=self.below(1 << 31), odd=2 * self.below(40) + 1) + "\n"

    def label(self):
        self.labels += 1
        return f"L{self.labels}"

    def statements(self, depth, together):
        """`together`: all lanes of the block come here."""
        return "".join(self.statement(depth, together) for _ in range(2 + self.below(4)))

    def statement(self, depth, together):
        kind = self.below(14)
        if kind < 4 and depth > 0:
            return (self.branch, self.loop, self.table, self.uniform_loop)[kind](depth - 1, together)
        if kind < 7 and together:
            return self.pick((WARP_OPERATIONS, BLOCK_OPERATIONS)[kind % 2])
        if kind == 7:
            return f"call ({self.register()}), mix_{self.name}, ({self.register()}, {self.register()});\n"
        return self.pick((MEMORY_OPERATIONS, FLOAT_OPERATIONS, INTEGER_OPERATIONS, INTEGER_OPERATIONS)[kind % 4])

    def branch(self, depth, _):
        other, end = self.label(), self.label()
        test = f"and.b32 %w20, {self.register()}, {1 + self.below(7)}; setp.eq.u32 %k0, %w20, 0; @%k0 bra {other};\n"
        return test + self.statements(depth, False) + f"bra {end};\n{other}:\n" + self.statements(depth, False) + f"{end}:\n"

    def loop(self, depth, _):
        """Of up to 7 rounds, another number in each lane; some leave it in its middle."""
        counter, begin, end = f"%w{self.counters}", self.label(), self.label()
        self.counters += 1
        text = f"and.b32 {counter}, {self.register()}, 7;\n{begin}:\nsetp.eq.u32 %k1, {counter}, 0; @%k1 bra {end}; sub.u32 {counter}, {counter}, 1;\n"
        text += self.statements(min(depth, 1), False)
        if self.below(2):
            text += f"and.b32 %w20, {self.register()}, 63; setp.eq.u32 %k1, %w20, 9; @%k1 bra {end};\n" + self.statements(0, False)
        self.counters -= 1
        return text + f"bra {begin};\n{end}:\n"

    def uniform_loop(self, depth, together):
        """Of three rounds, in which all lanes stay together."""
        counter, begin = f"%w{self.counters}", self.label()
        self.counters += 1
        text = f"mov.u32 {counter}, 3;\n{begin}:\n" + self.statements(min(depth, 1), together)
        self.counters -= 1
        return text + f"sub.u32 {counter}, {counter}, 1; setp.ne.u32 %k1, {counter}, 0; @%k1 bra {begin};\n"

    def table(self, depth, _):
        places, end, name = [self.label() for _ in range(4)], self.label(), self.label()
        text = f"and.b32 %w20, {self.register()}, 3;\n{name}: .branchtargets {', '.join(places)};\nbrx.idx %w20, {name};\n"
        for place in places:
            text += f"{place}:\n" + self.statements(min(depth, 1), False)
            text += f"bra {end};\n" if self.below(3) else ""  # or on into the next one
        return text + f"{end}:\n"


def programs():
    """Of each its name, its body, and what stands outside the kernel."""
    for number in range(PROGRAMS):
        program = Program(number)
        yield program.name, program.body, FUNCTION.format(name=program.name)
