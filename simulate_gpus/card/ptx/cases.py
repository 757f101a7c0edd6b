"""Test cases for a PTX interpreter: one instruction form each, with edge values as inputs.

Every case is a kernel `.entry NAME(.param .u64 in, .param .u64 out, .param .u32 n)`. Lane i reads its
operands from 8-byte slots of `in` and writes its results to 8-byte slots of `out` (which starts as zeros).
All of it is deterministic: the same texts and the same inputs on every machine, so that results taken on a
GPU (take.py) need no inputs beside them. `same` compares results as far as the PTX manual specifies them.
"""

import itertools
import zlib
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

import programs

LANES = 512  # per case, unless it says otherwise: enough for most pairs of edge values
KERNELS_PER_MODULE = 50
DEFAULT_ISA = "7.8"  # the first with sm_90; later ones only where an instruction needs them

EXACT = "exact"  # every bit
NAN = "nan"  # every bit, but a NaN equals any NaN: their payloads are not specified
APPROX = "approx"  # within `bound` of the true value (so two results can differ by twice that)
UNSPECIFIED = "unspecified"  # recorded to know it; an engine may differ


# ---------------------------------------------------------------------------------------------------- types

BITS = {
    "pred": 32, "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32": 32, "f64": 64, "tf32": 32,
    "e4m3x2": 16, "e5m2x2": 16, "u16x2": 32, "s16x2": 32, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16,
    "s16": 16, "b32": 32, "u32": 32, "s32": 32, "b64": 64, "u64": 64, "s64": 64,
}
FORMATS = {  # bits of exponent and fraction
    "f64": (11, 52), "f32": (8, 23), "tf32": (8, 23), "f16": (5, 10), "bf16": (8, 7), "e4m3": (4, 3), "e5m2": (5, 2),
}
PACKED = {"f16x2": "f16", "bf16x2": "bf16"}
FLOATS = set(FORMATS) | set(PACKED)
INTEGERS = ["u16", "s16", "u32", "s32", "u64", "s64"]


def register_bits(name):
    """Registers of 8 bits do not exist: narrow values are the low bits of a 32-bit register."""
    return max(BITS[name], 16) if BITS[name] != 8 else 32


@dataclass
class Case:
    name: str
    form: str  # the instruction as a reader knows it
    body: str  # PTX between the loads of the operands and the stores of the results
    operands: list  # types of the operands, %a %b %c %d (or %a0, %a1 ... if there are more than four)
    results: list  # types of the results, %r %s %t %u (or %r0 ...)
    inputs: np.ndarray  # uint64, [lanes, operands]
    minimum_sm: int = 75
    isa: str = DEFAULT_ISA
    grid: tuple = (1, 1, 1)
    block: tuple = (128, 1, 1)
    shared_bytes: int = 0  # dynamic
    compare: str = EXACT
    bound: dict = field(default_factory=dict)  # of "ulp", "relative", "absolute"
    module_text: str = ""  # declarations outside the kernel

    @property
    def lanes(self):
        return len(self.inputs)

    @property
    def result_bytes(self):
        return self.lanes * len(self.results) * 8

    def text(self):
        return self.module_text + kernel_text(self)


# --------------------------------------------------------------------------------------------- kernel texts

def operand_names(count):
    return ["%a", "%b", "%c", "%d"][:count] if count <= 4 else [f"%a{k}" for k in range(count)]


def result_names(count):
    return ["%r", "%s", "%t", "%u"][:count] if count <= 4 else [f"%r{k}" for k in range(count)]


LINEAR_INDEX = """\
  mov.u32 %i, %tid.x; mov.u32 %step, %ctaid.x; mov.u32 %width, %ntid.x; mad.lo.u32 %i, %step, %width, %i;
"""
INDEX_OF_THREE_DIMENSIONS = """\
  mov.u32 %i, %ctaid.z;
  mov.u32 %width, %nctaid.y; mov.u32 %step, %ctaid.y; mad.lo.u32 %i, %i, %width, %step;
  mov.u32 %width, %nctaid.x; mov.u32 %step, %ctaid.x; mad.lo.u32 %i, %i, %width, %step;
  mov.u32 %width, %ntid.z; mov.u32 %step, %tid.z; mad.lo.u32 %i, %i, %width, %step;
  mov.u32 %width, %ntid.y; mov.u32 %step, %tid.y; mad.lo.u32 %i, %i, %width, %step;
  mov.u32 %width, %ntid.x; mov.u32 %step, %tid.x; mad.lo.u32 %i, %i, %width, %step;
"""


def kernel_text(case):
    operands, results = operand_names(len(case.operands)), result_names(len(case.results))
    lines = [f"// {case.form}", f".visible .entry {case.name}(.param .u64 in, .param .u64 out, .param .u32 n)", "{"]
    lines += [
        "  .reg .b32 %i, %n, %step, %width, %flag; .reg .pred %none, %p, %q, %o; .reg .b64 %in, %out;",
        "  .reg .b16 %h<16>; .reg .b32 %w<64>; .reg .b64 %l<32>; .reg .pred %k<8>;",
    ]
    for type_name, register in zip(case.operands + case.results, operands + results):
        kind = "pred" if type_name == "pred" else f"b{register_bits(type_name)}"
        lines.append(f"  .reg .{kind} {register};")
    lines.append("  ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; ld.param.u32 %n, [n];")
    lines.append("  cvta.to.global.u64 %in, %in; cvta.to.global.u64 %out, %out;")
    lines.append((LINEAR_INDEX if case.block[1] == 1 else INDEX_OF_THREE_DIMENSIONS).rstrip("\n"))
    lines.append("  setp.ge.u32 %none, %i, %n; @%none bra DONE;")
    lines.append(f"  mad.wide.u32 %in, %i, {8 * len(case.operands)}, %in;")
    lines.append(f"  mad.wide.u32 %out, %i, {8 * len(case.results)}, %out;")
    for slot, (type_name, register) in enumerate(zip(case.operands, operands)):
        lines.append("  " + load_operand(type_name, register, 8 * slot))
    lines += ["  " + line for line in case.body.strip("\n").split("\n")]
    for slot, (type_name, register) in enumerate(zip(case.results, results)):
        lines.append("  " + store_result(type_name, register, 8 * slot))
    return "\n".join(lines + ["DONE:", "  ret;", "}", ""])


def load_operand(type_name, register, offset):
    if type_name == "pred":
        return f"ld.global.u32 %flag, [%in+{offset}]; setp.ne.u32 {register}, %flag, 0;"
    return f"ld.global.b{register_bits(type_name)} {register}, [%in+{offset}];"


def store_result(type_name, register, offset):
    if type_name == "pred":
        return f"selp.u32 %flag, 1, 0, {register}; st.global.u32 [%out+{offset}], %flag;"
    return f"st.global.b{register_bits(type_name)} [%out+{offset}], {register};"


def module_text(kernels):
    """PTX of one module; all kernels have the same minimum_sm and isa."""
    header = f".version {kernels[0].isa}\n.target sm_{kernels[0].minimum_sm}\n.address_size 64\n\n"
    return header + "\n".join(kernel.text() for kernel in kernels)


def modules():
    """Lists of cases that go into one module."""
    groups = {}
    for case in cases():
        groups.setdefault((case.minimum_sm, case.isa), []).append(case)
    for _, group in sorted(groups.items()):
        for start in range(0, len(group), KERNELS_PER_MODULE):
            yield group[start:start + KERNELS_PER_MODULE]


# --------------------------------------------------------------------------------------------------- values

def array(values, bits):
    return np.array([int(value) & ((1 << bits) - 1) for value in values], dtype=np.uint64)


def random_bits(rng, count, bits):
    """Any bit pattern; RandomState's streams are frozen, so they are the same in every numpy."""
    words = rng.randint(0, 1 << 32, (2, count), dtype=np.uint64)
    return ((words[0] << np.uint64(32)) | words[1]) & np.uint64((1 << bits) - 1)


def integer_edges(bits):
    values = {0, 1, 2, 3, 5, 7, -1, -2, -3, -7, 10, 100, 0x5555555555555555, 0xaaaaaaaaaaaaaaaa, 0x123456789abcdef0}
    for power in (7, 8, 15, 16, 24, 31, 32, 63):
        if power < bits:
            values |= {(1 << power) - 1, 1 << power, (1 << power) + 1, -(1 << power)}
    return array(sorted(values), bits)


SHIFTS = [0, 1, 2, 7, 8, 15, 16, 17, 24, 30, 31, 32, 33, 47, 48, 62, 63, 64, 65, 95, 96, 127, 128, 255, 256, 257,
          0x7fffffff, 0x80000000, 0x80000001, 0xffffffff]
POSITIONS = [0, 1, 2, 4, 7, 8, 9, 15, 16, 17, 24, 30, 31, 32, 33, 40, 48, 62, 63, 64, 65, 127, 128, 254, 255, 256,
             257, 0x1ff, 0x80000000, 0xffffffff]


def encode(format_name, value):
    """Bits of a Fraction, cut to the format (for making edge values, where rounding does not matter)."""
    exponent_bits, fraction_bits = FORMATS[format_name]
    bias = (1 << (exponent_bits - 1)) - 1
    sign, value = (1, -value) if value < 0 else (0, value)
    if value == 0:
        return 0
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** exponent > value:
        exponent -= 1
    exponent = max(exponent, 1 - bias)
    if exponent > bias:
        exponent, value = bias, (2 - Fraction(1, 1 << fraction_bits)) * Fraction(2) ** bias
    whole = int(value / Fraction(2) ** exponent * (1 << fraction_bits))
    biased = exponent + bias - (0 if whole >> fraction_bits else 1)
    return (sign << (exponent_bits + fraction_bits)) | ((biased << fraction_bits) + (whole & ((1 << fraction_bits) - 1)))


def both_signs(values, bits):
    return array(sorted({*values, *(value | (1 << (bits - 1)) for value in values)}), bits)


def float_edges(format_name):
    exponent_bits, fraction_bits = FORMATS[format_name]
    bits = 1 + exponent_bits + fraction_bits
    quiet = 1 << (fraction_bits - 1)
    infinity = ((1 << exponent_bits) - 1) << fraction_bits
    smallest = 1 << fraction_bits
    one = ((1 << (exponent_bits - 1)) - 1) << fraction_bits
    values = [0, 1, 2, 3, smallest >> 1, smallest - 1, smallest, smallest + 1, smallest * 2 + 1]
    values += [one - 1, one, one + 1, one + 2, one + 3, one | quiet, one + smallest, one + smallest + quiet, one - smallest]
    values += [infinity - 1, infinity - 2, infinity - smallest, infinity, infinity + 1, infinity + quiet,
               infinity + quiet + 5, infinity + smallest - 1]
    ulps = [Fraction(2) ** (power - fraction_bits) for power in (-1, -2, 0, 1)]  # halves: ties when added to one
    values += [encode(format_name, ulp) for ulp in ulps] + [encode(format_name, ulps[0]) + 1]
    values += [encode(format_name, Fraction(number)) for number in (Fraction(1, 10), Fraction(1, 3), 10, 1000)]
    values += [encode(format_name, Fraction(1 << fraction_bits) + number) for number in (-1, 0, 1)]
    return both_signs(values, bits)


def rounding_edges(source, target):
    """Values of a float format around the representable values of a narrower one, its ties, and its limits."""
    exponent_bits, fraction_bits = FORMATS[target]
    bias = (1 << (exponent_bits - 1)) - 1
    values = set()
    for exponent in (0, 1, -1, bias, bias + 1, 1 - bias, -bias, -bias - 1, 1 - bias - fraction_bits, -bias - fraction_bits):
        for quarter in range(-4, 13):
            number = Fraction(2) ** exponent * (1 + Fraction(quarter, 4 << fraction_bits))
            bits = encode(source, number)
            values |= {bits, bits + 1, max(bits - 1, 0)}
    for last in (-1, 0, 1):  # around the largest value: numbers that round to it, to infinity
        for quarter in range(-4, 5):
            number = Fraction(2) ** (bias + 1) * (1 - Fraction(1, 2 << fraction_bits) + Fraction(quarter, 8 << fraction_bits))
            values.add(max(encode(source, number) + last, 0))
    return both_signs(values, BITS[source])


def edges_for_integers(source):
    """Floats around the limits of the integer types, and halves (ties of .rni)."""
    values = set()
    for power in (7, 8, 15, 16, 31, 32, 63, 64):
        for delta in (-2, -1, Fraction(-1, 2), 0, Fraction(1, 2), 1, 2):
            bits = encode(source, Fraction(2) ** power + delta)
            values |= {bits, bits + 1, bits - 1}
    for half in range(0, 12):
        bits = encode(source, Fraction(half, 2))
        values |= {bits, bits + 1, max(bits - 1, 0)}
    return np.concatenate([both_signs(values, BITS[source]), float_edges(source)])


def integers_for_floats(bits):
    """Integers that need rounding as f16, f32, f64: ties and their neighbours at several lengths."""
    values = set(integer_edges(bits).tolist())
    for precision in (8, 11, 24, 53):
        for length in (precision + 1, precision + 2, precision + 5, bits - 1, bits):
            if precision < length <= bits:
                half = 1 << (length - precision - 1)
                for base in (1 << (length - 1), (1 << (length - 1)) + 2 * half, (1 << length) - 2 * half):
                    values |= {base + half - 1, base + half, base + half + 1, -(base + half), -(base + half + 1)}
    values |= {65504, 65519, 65520, 65521, 65535, -65504, -65519, -65520}
    return array(sorted(value & ((1 << bits) - 1) for value in values), bits)


def small_float_bits(format_name, numbers):
    return array([encode(format_name, Fraction(number)) for number in numbers], BITS.get(format_name, 8))


def uniform_bits(format_name, rng, count, low, high):
    numbers = rng.randint(int(low * 4096), int(high * 4096), count)
    return array([encode(format_name, Fraction(int(number), 4096)) for number in numbers], BITS.get(format_name, 8))


def pack(parts, bits):
    """The first part goes into the lowest bits."""
    total = np.zeros_like(parts[0])
    for place, part in enumerate(parts):
        total |= part << np.uint64(place * bits)
    return total


def edge_values(domain, rng):
    """Edge values of a type, or of a domain named after a colon: "u32:shift"."""
    type_name, _, special = domain.partition(":")
    bits = BITS[type_name]
    if special == "shift":
        return array(SHIFTS, bits)
    if special == "position":
        return array(POSITIONS, bits)
    if special == "divisor":
        edges = integer_edges(bits)
        return edges[edges != 0]
    if special.startswith("to_integer"):
        return edges_for_integers(type_name)
    if special.startswith("to_"):
        return np.concatenate([rounding_edges(type_name, special[3:]), float_edges(type_name)])
    if special == "to":
        raise ValueError(domain)
    if special == "float_source":
        return integers_for_floats(bits)
    if special.startswith("range"):
        low, high = (float(limit) for limit in special[5:].split("_"))
        return uniform_bits(type_name, rng, LANES // 2, low, high)
    if special.startswith("below"):
        return np.arange(int(special[5:]), dtype=np.uint64)
    if type_name == "pred":
        return array([0, 1], 32)
    if type_name in PACKED:
        edges = float_edges(PACKED[type_name])
        return pack([rng.permutation(np.repeat(edges, 2)), rng.permutation(np.repeat(edges, 2))], 16)
    if type_name in FORMATS:
        return float_edges(type_name)
    if bits == 8:
        return (random_bits(rng, 24, 24) << np.uint64(8)) | np.resize(integer_edges(8), 24)
    if type_name in ("u16x2", "s16x2", "b32") and special == "halves":
        return pack([rng.permutation(integer_edges(16)), rng.permutation(integer_edges(16))], 16)
    return integer_edges(bits)


def random_values(domain, rng, count):
    type_name, _, special = domain.partition(":")
    if special and not special.startswith(("to_", "float_source", "halves")):
        values = edge_values(domain, rng)
        if special == "divisor":
            return random_bits(rng, count, BITS[type_name]) | np.uint64(1)
        return values[rng.randint(0, len(values), count)]
    if type_name == "pred":
        return random_bits(rng, count, 1)
    if type_name in PACKED:
        return pack([random_floats(PACKED[type_name], rng, count) for _ in range(2)], 16)
    if type_name in FORMATS:
        return random_floats(type_name, rng, count)
    return random_bits(rng, count, register_bits(type_name))


def random_floats(format_name, rng, count):
    """A quarter is any bit pattern; the others are near one, so that sums and products have to be rounded."""
    exponent_bits, fraction_bits = FORMATS[format_name]
    bits = random_bits(rng, count, 1 + exponent_bits + fraction_bits)
    exponents = (rng.randint(-3, 4, count) + (1 << (exponent_bits - 1)) - 1).astype(np.uint64) << np.uint64(fraction_bits)
    field_mask = np.uint64(((1 << exponent_bits) - 1) << fraction_bits)
    return np.where(rng.randint(0, 4, count) == 0, bits, (bits & ~field_mask) | exponents)


def make_inputs(name, domains, lanes=LANES):
    """All combinations of edge values if they fit, else a seeded choice of them; then random values."""
    rng = np.random.RandomState(zlib.crc32(name.encode()))
    if not domains:
        return np.zeros((lanes, 0), dtype=np.uint64)
    edges = [edge_values(domain, rng) for domain in domains]
    possible = int(np.prod([len(column) for column in edges], dtype=object))
    arithmetic = len(domains) > 1 and all(domain in FLOATS for domain in domains)
    room = lanes // 2 if arithmetic else lanes * 7 // 8
    if possible <= room:
        chosen = np.array(list(itertools.product(*edges)), dtype=np.uint64).reshape(possible, len(domains))
    elif possible <= 1 << 16:
        index = rng.permutation(possible)[:room]
        grids = np.unravel_index(index, [len(column) for column in edges])
        chosen = np.stack([column[grid] for column, grid in zip(edges, grids)], axis=1)
    else:
        chosen = np.stack([column[rng.randint(0, len(column), room)] for column in edges], axis=1)
    extra = lanes // 2 if arithmetic else min(lanes - len(chosen), lanes // 4)
    others = np.stack([random_values(domain, rng, extra) for domain in domains], axis=1)
    return np.concatenate([chosen, others]).astype(np.uint64)


# --------------------------------------------------------------------------------------------- making cases

def identifier(form):
    return "".join(letter if letter.isalnum() else "_" for letter in form).strip("_")


def default_compare(results):
    return NAN if any(result in FLOATS for result in results) else EXACT


def make(name, body, operands, results, form=None, lanes=LANES, inputs=None, compare=None, block=(128, 1, 1), grid=None, **rest):
    """A case; operands and results are types as one string, "u32 u32:shift"."""
    domains, results = operands.split(), results.split()
    form, name = form or name, identifier(name)
    if inputs is None:
        inputs = make_inputs(name, domains, lanes)
    if grid is None:
        grid = (-(-len(inputs) // int(np.prod(block))), 1, 1)
    types = [domain.partition(":")[0] for domain in domains]
    return Case(name, form, body, types, results, inputs, grid=grid, block=block,
                compare=compare or default_compare(results), **rest)


def simple(form, operands, results, tail="", suffix="", **rest):
    """`form result, operands...;` with registers alone."""
    count, result_count = len(operands.split()), len(results.split())
    left = "|".join(result_names(result_count))
    arguments = ", ".join([left] + operand_names(count)) + tail
    return make(form + suffix, f"{form} {arguments};", operands, results, form=form + suffix, **rest)


def same_type(form, type_name, count, **rest):
    return simple(f"{form}.{type_name}", " ".join([type_name] * count), type_name, **rest)


# ------------------------------------------------------------------------------------------------- integers

def integer_arithmetic():
    for kind in INTEGERS:
        for form in ("add", "sub", "mul.lo", "mul.hi", "min", "max"):
            yield same_type(form, kind, 2)
        for form in ("mad.lo", "mad.hi", "sad"):
            yield same_type(form, kind, 3)
        for form in ("div", "rem"):
            yield simple(f"{form}.{kind}", f"{kind} {kind}:divisor", kind)
            yield make(f"{form}.{kind}.zero", f"{form}.{kind} %r, %a, %b;", f"{kind} {kind}:below1", kind, compare=UNSPECIFIED)
        if kind[0] == "s":
            yield same_type("abs", kind, 1)
            yield same_type("neg", kind, 1)
        if kind[1:] != "64":
            wide = kind[0] + str(2 * BITS[kind])
            yield simple(f"mul.wide.{kind}", f"{kind} {kind}", wide)
            yield simple(f"mad.wide.{kind}", f"{kind} {kind} {wide}", wide)
    for form, count in (("add.sat", 2), ("sub.sat", 2), ("mad.hi.sat", 3), ("mad24.hi.sat", 3)):
        yield same_type(form, "s32", count)
    for kind, half in itertools.product(("u32", "s32"), ("lo", "hi")):
        yield same_type(f"mul24.{half}", kind, 2)
        yield same_type(f"mad24.{half}", kind, 3)
    for kind in ("u16x2", "s16x2"):
        for form in ("add", "min", "max"):
            yield simple(f"{form}.{kind}", f"{kind}:halves {kind}:halves", kind, minimum_sm=90, isa="8.0")
    for form, kind in itertools.product(("min.relu", "max.relu"), ("s32", "s16x2")):
        yield simple(f"{form}.{kind}", f"{kind} {kind}", kind, minimum_sm=90, isa="8.0")
    for left, right in itertools.product("us", "us"):
        yield simple(f"dp4a.{left}32.{right}32", "b32 b32 b32", "s32")
        for half in ("lo", "hi"):
            yield simple(f"dp2a.{half}.{left}32.{right}32", "b32 b32 b32", "s32")


def carry_chains():
    for kind in ("u32", "s32", "u64", "s64"):
        for form, last in (("add", "addc"), ("sub", "subc")):
            body = f"{form}.cc.{kind} %r, %a, %b;\n{last}.cc.{kind} %s, %c, %d;\n{last}.{kind} %t, 0, 0;"
            yield make(f"{form}.cc.{kind}", body, f"{kind} {kind} {kind} {kind}", f"{kind} {kind} {kind}", lanes=1024)
        product = f"mad.lo.cc.{kind} %r, %a, %b, %c;\nmadc.hi.cc.{kind} %s, %a, %b, %d;\naddc.{kind} %t, 0, 0;"
        yield make(f"mad.lo.cc.{kind}", product, f"{kind} {kind} {kind} {kind}", f"{kind} {kind} {kind}")
        product = f"mad.hi.cc.{kind} %r, %a, %b, %c;\nmadc.lo.cc.{kind} %s, %a, %b, %d;\nmadc.hi.{kind} %t, %a, %b, %d;"
        yield make(f"mad.hi.cc.{kind}", product, f"{kind} {kind} {kind} {kind}", f"{kind} {kind} {kind}")


def bit_operations():
    for bits in (16, 32, 64):
        for form in ("and", "or", "xor"):
            yield same_type(form, f"b{bits}", 2)
        for form in ("not", "cnot"):
            yield same_type(form, f"b{bits}", 1)
        for kind in (f"shl.b{bits}", f"shr.b{bits}", f"shr.u{bits}", f"shr.s{bits}"):
            yield simple(kind, f"b{bits} u32:shift", f"b{bits}", lanes=1024)
    for form in ("and", "or", "xor"):
        yield same_type(form, "pred", 2)
    yield same_type("not", "pred", 1)
    for kind in ("b32", "b64"):
        yield simple(f"popc.{kind}", kind, "u32")
        yield simple(f"clz.{kind}", kind, "u32")
        yield simple(f"brev.{kind}", kind, kind)
        yield simple(f"bfi.{kind}", f"{kind} {kind} u32:position u32:position", kind, lanes=1024)
    for kind in ("u32", "s32", "u64", "s64"):
        yield simple(f"bfind.{kind}", kind, "u32")
        yield simple(f"bfind.shiftamt.{kind}", kind, "u32")
        yield simple(f"bfe.{kind}", f"{kind} u32:position u32:position", kind, lanes=1024)
    for direction, mode in itertools.product("lr", ("clamp", "wrap")):
        yield simple(f"shf.{direction}.{mode}.b32", "b32 b32 u32:shift", "b32", lanes=768)
    for mode in ("clamp", "wrap"):
        yield simple(f"bmsk.{mode}.b32", "u32:position u32:position", "b32", lanes=1024)
        for kind in ("u32", "s32"):
            yield simple(f"szext.{mode}.{kind}", f"{kind} u32:shift", kind, lanes=768)
    fns = "b32 u32:below32 s32:below33"
    yield simple("fns.b32", fns, "b32", lanes=768)
    negative = make_inputs("fns negative", fns.split(), 512)
    negative[:, 2] = (np.uint64(1 << 32) - negative[:, 2]) & np.uint64(0xffffffff)
    yield make("fns.b32.negative", "fns.b32 %r, %a, %b, %c;", fns, "b32", inputs=negative)


def permutations_and_tables():
    yield simple("prmt.b32", "b32 b32 b32", "b32", lanes=1024)
    for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        yield simple("prmt.b32." + mode, "b32 b32 b32", "b32")
    for first in range(0, 256, 64):
        body = "\n".join(f"lop3.b32 %r{place}, %a, %b, %c, {first + place};" for place in range(64))
        yield make(f"lop3.b32.from_{first}", body, "b32 b32 b32", " ".join(["b32"] * 64), lanes=16, form="lop3.b32")
    for boolean, table in itertools.product(("or", "and"), (0x80, 0x96, 0xe8, 0x1b)):
        yield make(f"lop3.{boolean}.b32.{table:x}", f"lop3.{boolean}.b32 %r|%s, %a, %b, %c, {table}, %d;",
                   "b32 b32 b32 pred", "b32 pred", isa="8.2")


# --------------------------------------------------------------------------------------------- comparisons

ORDERED = ["eq", "ne", "lt", "le", "gt", "ge"]
UNORDERED = ["equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"]


def comparisons_of(kind):
    if kind[0] == "b" and kind not in ("bf16", "bf16x2"):
        return ["eq", "ne"]
    if kind[0] == "u":
        return ORDERED + ["lo", "ls", "hi", "hs"]
    return ORDERED + (UNORDERED if kind in FLOATS else [])


COMPARED = ["b16", "b32", "b64"] + INTEGERS + ["f32", "f64"]
COMPARED_HALVES = ["f16", "f16x2", "bf16", "bf16x2"]


def minimum_of(kind):
    return 90 if kind in ("bf16", "bf16x2") else 75


def setp_forms(kind, flush):
    tail = (".ftz." if flush else ".") + kind
    one = kind in ("f16", "bf16")  # these write no second predicate
    left, results = ("%r", "pred") if one else ("%r|%s", "pred pred")
    place = {"minimum_sm": minimum_of(kind)}
    for comparison in comparisons_of(kind):
        form = f"setp.{comparison}{tail}"
        yield make(form, f"{form} {left}, %a, %b;", f"{kind} {kind}", results, **place)
    for boolean, sign in itertools.product(("and", "or", "xor"), ("", "!")):
        form = f"setp.ne.{boolean}{tail}"
        yield make(form + (".not" if sign else ""), f"{form} {left}, %a, %b, {sign}%c;", f"{kind} {kind} pred", results, **place)


def set_forms(kind, flush):
    place = {"minimum_sm": minimum_of(kind)}
    targets = {"f16": ["f16", "u16", "s16"], "bf16": ["bf16", "u16", "s16"], "f16x2": ["f16x2"],
               "bf16x2": ["bf16x2"]}.get(kind, ["u32", "s32", "f32"])
    flushed = ".ftz" if flush else ""
    for target in targets:
        for comparison in comparisons_of(kind) if target == targets[0] else sorted({"ne", comparisons_of(kind)[-1]}):
            yield simple(f"set.{comparison}{flushed}.{target}.{kind}", f"{kind} {kind}", target, **place)
        for boolean in ("and", "or", "xor"):
            yield simple(f"set.eq.{boolean}{flushed}.{target}.{kind}", f"{kind} {kind} pred", target, **place)


def comparisons():
    for kind in COMPARED + COMPARED_HALVES:
        yield from setp_forms(kind, False)
        yield from set_forms(kind, False)
    for kind in ("f32", "f16", "f16x2"):
        yield from setp_forms(kind, True)
        yield from set_forms(kind, True)
    for kind in ["b16", "b32", "b64"] + INTEGERS + ["f32", "f64"]:
        yield simple(f"selp.{kind}", f"{kind} {kind} pred", kind, compare=EXACT)
        for chooser in ("s32", "f32") + (("ftz",) if kind in ("b32", "f32", "u64") else ()):
            form = f"slct.{'ftz.' if chooser == 'ftz' else ''}{kind}.{'f32' if chooser == 'ftz' else chooser}"
            yield simple(form, f"{kind} {kind} {'s32' if chooser == 's32' else 'f32'}", kind, compare=EXACT)
    for test in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
        for kind in ("f32", "f64"):
            yield simple(f"testp.{test}.{kind}", kind, "pred")


# ------------------------------------------------------------------------------------------------- floats

ROUNDINGS = ["rn", "rz", "rm", "rp"]


def f32_arithmetic():
    for form, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3), ("mad", 3)):
        # "add.f32" alone is there as well: it rounds as .rn
        for rounding in ROUNDINGS + ([] if count == 3 else [""]):
            for flush, saturate in itertools.product(("", "ftz"), ("", "sat")):
                if form == "mad" and (rounding != "rn"):
                    continue  # the same operation as fma
                parts = [part for part in (form, rounding, flush, saturate) if part]
                yield same_type(".".join(parts), "f32", count, lanes=1280)
    for form, count in (("div", 2), ("rcp", 1), ("sqrt", 1)):
        for rounding, flush in itertools.product(ROUNDINGS, ("", ".ftz")):
            yield same_type(f"{form}.{rounding}{flush}", "f32", count, lanes=1280)
    for flush in ("", ".ftz"):
        yield same_type("abs" + flush, "f32", 1)
        yield same_type("neg" + flush, "f32", 1)
        for form, tail in itertools.product(("min", "max"), ("", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs")):
            sm = 86 if "xorsign" in tail else 80 if tail else 75
            yield same_type(form + flush + tail, "f32", 2, minimum_sm=sm, lanes=768)
    yield same_type("copysign", "f32", 2, compare=EXACT)


def f64_arithmetic():
    for form, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3), ("div", 2), ("rcp", 1), ("sqrt", 1)):
        for rounding in ROUNDINGS:
            yield same_type(f"{form}.{rounding}", "f64", count, lanes=1280)
    for form in ("add", "sub", "mul", "min", "max"):
        yield same_type(form, "f64", 2)
    yield same_type("mad.rn", "f64", 3)
    yield same_type("abs", "f64", 1)
    yield same_type("neg", "f64", 1)
    yield same_type("copysign", "f64", 2, compare=EXACT)


def half_arithmetic():
    for kind in ("f16", "f16x2"):
        for form, rounding, flush, saturate in itertools.product(("add", "sub", "mul"), ("", ".rn"), ("", ".ftz"), ("", ".sat")):
            yield same_type(form + rounding + flush + saturate, kind, 2)
        for flush, tail in itertools.product(("", ".ftz"), ("", ".sat", ".relu")):
            yield same_type("fma.rn" + flush + tail, kind, 3, lanes=1024, minimum_sm=80 if "relu" in tail else 75)
        for tail in ("", ".relu"):
            yield same_type("fma.rn.oob" + tail, kind, 3, minimum_sm=90, isa="8.1")
        for flush in ("", ".ftz"):
            yield same_type("abs" + flush, kind, 1)
            yield same_type("neg" + flush, kind, 1)
    for kind in ("bf16", "bf16x2"):
        for form, rounding in itertools.product(("add", "sub", "mul"), ("", ".rn")):
            yield same_type(form + rounding, kind, 2, minimum_sm=90)
        for tail in ("", ".relu"):
            yield same_type("fma.rn" + tail, kind, 3, lanes=1024, minimum_sm=80)
            yield same_type("fma.rn.oob" + tail, kind, 3, minimum_sm=90, isa="8.1")
        yield same_type("abs", kind, 1, minimum_sm=80)
        yield same_type("neg", kind, 1, minimum_sm=80)
    for kind, form, tail in itertools.product(COMPARED_HALVES, ("min", "max"), ("", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs")):
        for flush in ("", ".ftz") if kind[0] == "f" else ("",):
            yield same_type(form + flush + tail, kind, 2, minimum_sm=86 if "xorsign" in tail else 80)


# Bounds of the PTX manual, to the true value. Inputs outside the range for which it gives one are left out.
def approximations():
    def approximate(form, operands, kind, bound, suffix="", **rest):
        return simple(form, operands, kind, suffix=suffix, compare=APPROX, bound=bound, **rest)

    for flush in ("", ".ftz"):
        yield approximate(f"rcp.approx{flush}.f32", "f32", "f32", {"ulp": 1})
        yield approximate(f"sqrt.approx{flush}.f32", "f32", "f32", {"relative": 2.0 ** -23})
        yield approximate(f"rsqrt.approx{flush}.f32", "f32", "f32", {"relative": 2.0 ** -22.9})
        yield approximate(f"lg2.approx{flush}.f32", "f32", "f32", {"absolute": 2.0 ** -22, "relative": 2.0 ** -22})
        yield approximate(f"lg2.approx{flush}.f32", "f32:range0.01_40", "f32", {"absolute": 2.0 ** -22, "relative": 2.0 ** -22}, ".inner")
        yield approximate(f"ex2.approx{flush}.f32", "f32", "f32", {"ulp": 2})
        yield approximate(f"ex2.approx{flush}.f32", "f32:range-150_130", "f32", {"ulp": 2}, ".inner")
        yield approximate(f"div.full{flush}.f32", "f32 f32", "f32", {"ulp": 2}, lanes=768)
        yield approximate(f"div.approx{flush}.f32", "f32 f32:range-1000_1000", "f32", {"ulp": 2}, ".inner")
        yield approximate(f"div.approx{flush}.f32", "f32 f32", "f32", {"ulp": 2}, lanes=768)
        for form in ("sin", "cos"):
            yield approximate(f"{form}.approx{flush}.f32", "f32:range-6.283_6.283", "f32", {"absolute": 2.0 ** -20.5})
            yield make(f"{form}.approx{flush}.f32.special", f"{form}.approx{flush}.f32 %r, %a;", "f32", "f32", compare=APPROX,
                       bound={"absolute": 2.0 ** -20.5}, inputs=array(SPECIAL_ANGLES, 32).reshape(-1, 1))
    yield approximate("tanh.approx.f32", "f32", "f32", {"relative": 2.0 ** -11})
    yield approximate("tanh.approx.f32", "f32:range-6_6", "f32", {"relative": 2.0 ** -11}, ".inner")
    yield approximate("rcp.approx.ftz.f64", "f64", "f64", {"relative": 2.0 ** -20})
    yield approximate("rsqrt.approx.f64", "f64", "f64", {"relative": 2.0 ** -45})
    yield approximate("rsqrt.approx.ftz.f64", "f64", "f64", {"relative": 2.0 ** -20})
    for kind in ("f16", "f16x2", "bf16", "bf16x2"):
        half, sm = kind[0] == "f", 75 if kind[0] == "f" else 90
        yield approximate(f"tanh.approx.{kind}", kind, kind, {"absolute": 2.0 ** (-10.987 if half else -8)}, minimum_sm=sm)
        yield approximate(f"ex2.approx{'' if half else '.ftz'}.{kind}", kind, kind, {"relative": 2.0 ** (-9.9 if half else -7)}, minimum_sm=sm)


# +-0, +-infinity, NaN, denormals: known results; pi and pi/2 in f32
SPECIAL_ANGLES = [0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 1, 0x80000001, 0x7fffff, 0x800000,
                  0x40490fdb, 0xc0490fdb, 0x3fc90fdb, 0xbfc90fdb]


# -------------------------------------------------------------------------------------------- conversions

def holds(target, source):
    """Has the integer type all values of the other one? Then .sat is not legal."""
    if target[0] == source[0]:
        return BITS[target] >= BITS[source]
    return target[0] == "s" and BITS[target] > BITS[source]


def integer_conversions():
    kinds = ["u8", "s8"] + INTEGERS
    for target, source in itertools.product(kinds, kinds):
        for saturate in ("",) if holds(target, source) else ("", ".sat"):
            yield simple(f"cvt{saturate}.{target}.{source}", source, target, lanes=160)
    for target, source in (("u8", "s32"), ("s8", "s32"), ("s8", "u16"), ("u16", "s64"), ("s16", "u64"), ("s16", "s32")):
        # into a wider register: the sign or zeros fill it
        yield make(f"cvt.{target}.{source}.wide", f"cvt.{target}.{source} %r, %a;", source, "b64", lanes=160)
    for target, source in (("s32", "s8"), ("u32", "s8"), ("s64", "s16"), ("u64", "u8"), ("s64", "u32")):
        # from a wider register: only the low bits count
        yield make(f"cvt.{target}.{source}.low", f"cvt.{target}.{source} %r, %a;", "b64", target, lanes=160)
    for target in ("u16", "s16"):
        yield simple(f"cvt.pack.sat.{target}.s32", "s32 s32", "b32")
    for target in ("u8", "s8", "u4", "s4", "u2", "s2"):
        yield simple(f"cvt.pack.sat.{target}.s32.b32", "s32 s32 b32", "b32")
        if target[1] in "842":
            small = f"s32:below{300 if target[1] == '8' else 20}"
            yield simple(f"cvt.pack.sat.{target}.s32.b32", f"{small} s32 b32", "b32", suffix=".small")


def conversions_between_floats_and_integers():
    integers = ["u8", "s8"] + INTEGERS
    for number, integer in itertools.product(("f16", "f32", "f64", "bf16"), integers):
        sm = minimum_of(number)
        if number == "bf16" and BITS[integer] == 8:
            continue  # not legal; nor is .sat with bf16
        for rounding in ROUNDINGS:
            yield simple(f"cvt.{rounding}.{number}.{integer}", f"{integer}:float_source" if BITS[integer] > 8 else integer,
                         number, lanes=320, minimum_sm=sm)
            for flush, saturate in itertools.product(("", ".ftz") if number == "f32" else ("",), ("", ".sat")):
                if saturate and (number == "bf16" or integer not in ("u8", "s32", "u64")):
                    continue  # floats are clamped to the integer's range in any case
                yield simple(f"cvt.{rounding}i{flush}{saturate}.{integer}.{number}", f"{number}:to_integer", integer,
                             lanes=400, minimum_sm=sm)
        if number != "bf16":
            yield simple(f"cvt.rn.sat.{number}.{integer}", integer, number, lanes=160)


def conversions_between_floats():
    for number in ("f16", "f32", "f64"):
        for rounding, saturate in itertools.product(ROUNDINGS, ("", ".sat")):
            for flush in ("", ".ftz") if number == "f32" else ("",):
                yield simple(f"cvt.{rounding}i{flush}{saturate}.{number}.{number}", f"{number}:to_integer", number, lanes=400)
        yield simple(f"cvt.sat.{number}.{number}", number, number, lanes=160)
    for saturate in ("", ".sat"):
        yield simple(f"cvt.ftz{saturate}.f32.f32", "f32", "f32", lanes=160)
        for wide, narrow in (("f32", "f16"), ("f64", "f16"), ("f64", "f32")):
            flushes = ("", ".ftz") if "f32" in (wide, narrow) else ("",)
            for flush in flushes:
                yield simple(f"cvt{flush}{saturate}.{wide}.{narrow}", narrow, wide, lanes=192)
                for rounding in ROUNDINGS:
                    yield simple(f"cvt.{rounding}{flush}{saturate}.{narrow}.{wide}", f"{wide}:to_{narrow}", narrow, lanes=640)
    for rounding, tail in itertools.product(("rn", "rz"), ("", ".relu")):
        yield simple(f"cvt.{rounding}{tail}.bf16.f32", "f32:to_bf16", "bf16", lanes=640, minimum_sm=80)
        yield simple(f"cvt.{rounding}{tail}.f16.f32", "f32:to_f16", "f16", lanes=640, minimum_sm=80, suffix=".sm80")
        for pair in ("f16x2", "bf16x2"):
            yield simple(f"cvt.{rounding}{tail}.{pair}.f32", f"f32:to_{PACKED[pair]} f32:to_{PACKED[pair]}", pair, lanes=640, minimum_sm=80)
        yield simple(f"cvt.{rounding}{tail}.tf32.f32", "f32:to_bf16", "tf32", lanes=640, minimum_sm=90)
    yield simple("cvt.rna.tf32.f32", "f32:to_bf16", "tf32", lanes=640, minimum_sm=80)
    yield simple("cvt.f32.bf16", "bf16", "f32", minimum_sm=90)
    yield simple("cvt.f64.bf16", "bf16", "f64", minimum_sm=90)
    yield simple("cvt.rn.f16.bf16", "bf16:to_f16", "f16", minimum_sm=90)
    for rounding in ROUNDINGS:
        yield simple(f"cvt.{rounding}.bf16.f64", "f64:to_bf16", "bf16", minimum_sm=90, lanes=640)
        yield simple(f"cvt.{rounding}.bf16.f16", "f16:to_bf16", "bf16", minimum_sm=90)
        yield simple(f"cvt.{rounding}i.bf16.bf16", "bf16:to_integer", "bf16", minimum_sm=90)
    yield from conversions_of_eight_bits()


def conversions_of_eight_bits():
    for kind, tail in itertools.product(("e4m3", "e5m2"), ("", ".relu")):
        place = {"minimum_sm": 89, "isa": "8.1"}
        yield simple(f"cvt.rn.satfinite{tail}.{kind}x2.f32", f"f32:to_{kind} f32:to_{kind}", f"{kind}x2", lanes=768, **place)
        yield simple(f"cvt.rn.satfinite{tail}.{kind}x2.f16x2", "f16x2", f"{kind}x2", lanes=768, **place)
        every = np.arange(256, dtype=np.uint64) | (np.arange(256, dtype=np.uint64)[::-1] << np.uint64(8))
        yield simple(f"cvt.rn{tail}.f16x2.{kind}x2", f"{kind}x2", "f16x2", inputs=every.reshape(-1, 1), **place)


# ---------------------------------------------------------------------------------------- video instructions

def video_instructions():
    scalar = [("vadd", ""), ("vadd", ".sat"), ("vsub", ""), ("vsub", ".sat"), ("vabsdiff", ""), ("vmin", ""), ("vmax", "")]
    for (form, saturate), left, right in itertools.product(scalar, "us", "us"):
        target = "s" if left == right == "s" or form == "vsub" else "u"
        name = f"{form}.{target}32.{left}32.{right}32{saturate}"
        yield simple(name, "b32 b32", "b32")
        yield make(name + ".parts", f"{name} %r, %a.b1, %b.h1;", "b32 b32", "b32")
        if saturate == "":
            for second in ("add", "min", "max"):
                yield simple(f"{name}.{second}", "b32 b32 b32", "b32")
    for form, mode in itertools.product(("vshl", "vshr"), ("clamp", "wrap")):
        yield simple(f"{form}.u32.u32.u32.{mode}", "b32 u32:shift", "b32")
        yield simple(f"{form}.s32.s32.u32.{mode}", "b32 u32:shift", "b32")
    for tail in ("", ".shr7", ".shr15", ".sat", ".sat.shr7"):
        yield simple("vmad.s32.s32.s32" + tail, "b32 b32 b32", "b32")
        yield simple("vmad.u32.u32.u32" + tail, "b32 b32 b32", "b32")
    for comparison in ORDERED:
        yield simple(f"vset.s32.u32.{comparison}", "b32 b32", "b32")
    for width, kind in itertools.product("24", "us"):
        types = f"{kind}32.{kind}32.{kind}32"
        for form in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"):
            yield simple(f"{form}{width}.{types}", "b32 b32 b32", "b32")
            if form in ("vadd", "vsub"):
                yield simple(f"{form}{width}.{types}.sat", "b32 b32 b32", "b32")
        yield simple(f"vabsdiff{width}.{types}.add", "b32 b32 b32", "b32")
        for comparison in ("lt", "ne"):
            yield simple(f"vset{width}.{kind}32.{kind}32.{comparison}", "b32 b32 b32", "b32")
            yield simple(f"vset{width}.{kind}32.{kind}32.{comparison}.add", "b32 b32 b32", "b32")


# ------------------------------------------------------------------------------------------------- warps

ALL = "0xffffffff"
WARPS = 16
IS_MEMBER = "mov.u32 %w0, %laneid; shr.u32 %w0, {mask}, %w0; and.b32 %w0, %w0, 1; setp.ne.u32 %p, %w0, 0;"


def warp_inputs(name, columns, warps=WARPS):
    """Columns of values per lane; ("warp", values) is one value for all lanes of a warp."""
    rng = np.random.RandomState(zlib.crc32(name.encode()))
    result = []
    for scope, values in columns:
        values = np.array(values, dtype=np.uint64)
        if scope == "warp":
            result.append(np.repeat(values[np.arange(warps) % len(values)], 32))
        else:
            result.append(values[rng.randint(0, len(values), warps * 32)])
    return np.stack(result, axis=1)


MEMBER_MASKS = [0xffffffff, 1, 0x80000000, 0xffff, 0xffff0000, 0x55555555, 0xaaaaaaab, 0x12345678, 0x7fffffff, 0xfffffffe,
                0x00ff00ff, 0x80000001, 0xf0f0f0f0, 0x10, 0x0001fffe, 0xdeadbeef]


def shuffles():
    segments = [(((32 - width) << 8) | 0x1f) for width in (32, 16, 8, 4, 2, 1)]
    bounds = {"up": [limit & ~0x1f for limit in segments] + [5, 0x1004, 0x1810], "idx": segments + [7, 0x1805, 0x1010],
              "down": segments + [7, 0x1805, 0x1010], "bfly": segments + [7, 0x1805, 0x1010]}
    distances = list(range(34)) + [63, 0xffffffff, 0x80000001]
    for mode in ("up", "down", "bfly", "idx"):
        columns = [("lane", integer_edges(32)), ("lane", range(1 << 16)), ("warp", bounds[mode])]
        inputs = warp_inputs(mode, columns, 64)
        rng = np.random.RandomState(zlib.crc32(mode.encode()))
        inputs[:, 0] = random_bits(rng, len(inputs), 32)  # all lanes differ, so that a wrong source shows
        inputs[:, 1] = np.array(distances, dtype=np.uint64)[rng.randint(0, len(distances), len(inputs))]
        same = np.array(distances[:32], dtype=np.uint64)[np.arange(32)]
        inputs[:1024, 1] = np.repeat(same, 32)  # the usual form: one distance for the warp
        yield make(f"shfl.sync.{mode}.b32", f"shfl.sync.{mode}.b32 %r|%s, %a, %b, %c, {ALL};", "b32 u32 u32", "b32 pred", inputs=inputs)
        yield make(f"shfl.sync.{mode}.b32.immediate",
                   f"shfl.sync.{mode}.b32 %r, %a, 3, {0 if mode == 'up' else 31}, {ALL};", "b32 u32 u32", "b32", inputs=inputs[:256])
    inputs = warp_inputs("members", [("lane", range(1 << 16)), ("warp", [0]), ("warp", MEMBER_MASKS)])
    for row in range(len(inputs)):  # the source is a member of the mask: others would not be defined
        mask = int(inputs[row, 2])
        members = [lane for lane in range(32) if mask >> lane & 1]
        inputs[row, 1] = members[row % len(members)]
    body = IS_MEMBER.format(mask="%c") + "\nmov.b32 %r, 0;\n@%p shfl.sync.idx.b32 %r, %a, %b, 31, %c;"
    yield make("shfl.sync.idx.b32.members", body, "b32 u32 b32", "b32", inputs=inputs)


def votes_and_matches():
    masks = ("warp", MEMBER_MASKS)
    for chance, name in ((("lane", [0, 1]), "mixed"), (("lane", [0] * 60 + [1]), "few"), (("lane", [1] * 60 + [0]), "most"), (("warp", [0, 1]), "equal")):
        inputs = warp_inputs("vote" + name, [chance, masks], 32)
        for mode, result in (("all.pred", "pred"), ("any.pred", "pred"), ("uni.pred", "pred"), ("ballot.b32", "b32")):
            clear = "setp.ne.u32 %r, 0, 0;" if result == "pred" else "mov.b32 %r, 0;"
            body = IS_MEMBER.format(mask="%b") + f"\n{clear}\n@%p vote.sync.{mode} %r, %a, %b;"
            yield make(f"vote.sync.{mode}.{name}", body, "pred b32", result, inputs=inputs)
        body = IS_MEMBER.format(mask="%b") + "\nmov.b32 %r, 0;\n@%p vote.sync.ballot.b32 %r, !%a, %b;"
        yield make(f"vote.sync.ballot.b32.not.{name}", body, "pred b32", "b32", inputs=inputs)
    for bits in (32, 64):
        high = 1 << (bits - 1)
        for values, name in ((("lane", [0, 1, high, high + 1, 5]), "few"), (("warp", [7, high]), "equal"), (("lane", range(99)), "many")):
            inputs = warp_inputs(f"match{bits}{name}", [values, masks], 32)
            body = IS_MEMBER.format(mask="%b") + f"\nmov.b32 %r, 0;\n@%p match.any.sync.b{bits} %r, %a, %b;"
            yield make(f"match.any.sync.b{bits}.{name}", body, f"b{bits} b32", "b32", inputs=inputs)
            body = IS_MEMBER.format(mask="%b") + (f"\nmov.b32 %r, 0; setp.ne.u32 %s, 0, 0;\n"
                                                  f"@%p match.all.sync.b{bits} %r|%s, %a, %b;")
            yield make(f"match.all.sync.b{bits}.{name}", body, f"b{bits} b32", "b32 pred", inputs=inputs)


def warp_reductions():
    masks = ("warp", MEMBER_MASKS)
    for form, kinds in (("add", "us"), ("min", "us"), ("max", "us"), ("and", "b"), ("or", "b"), ("xor", "b")):
        for kind in kinds:
            name = f"redux.sync.{form}.{kind}32"
            inputs = warp_inputs(name, [("lane", integer_edges(32)), masks], 32)
            body = IS_MEMBER.format(mask="%b") + f"\nmov.b32 %r, 0;\n@%p {name} %r, %a, %b;"
            yield make(name, body, "b32 b32", "b32", inputs=inputs, minimum_sm=80)
    inputs = warp_inputs("activemask", [("lane", [0, 1])], 16)
    body = ("mov.b32 %s, 0;\nactivemask.b32 %t;\n@!%a bra ELSE;\nactivemask.b32 %r;\nbra.uni JOIN;\n"
            "ELSE:\nactivemask.b32 %r;\nmov.b32 %s, 1;\nJOIN:\nbar.warp.sync 0xffffffff;")
    yield make("activemask.b32", body, "pred", "b32 b32 b32", inputs=inputs)
    inputs = warp_inputs("elect", [masks])
    body = IS_MEMBER.format(mask="%a") + "\nmov.b32 %r, 0; setp.ne.u32 %s, 0, 0;\n@%p elect.sync %r|%s, %a;"
    yield make("elect.sync", body, "b32", "b32 pred", inputs=inputs, minimum_sm=90, isa="8.0")
    body = ("mov.u32 %w0, %laneid; mov.u32 %w1, %tid.x;\nshl.b32 %w2, %w1, 2; mov.u32 %w3, buffer; add.u32 %w2, %w3, %w2;\n"
            "st.shared.b32 [%w2], %a;\nbar.warp.sync 0xffffffff;\nxor.b32 %w4, %w1, 5; shl.b32 %w4, %w4, 2; add.u32 %w4, %w3, %w4;\n"
            "ld.shared.b32 %r, [%w4];")
    yield make("bar.warp.sync", ".shared .align 4 .b8 buffer[512];\n" + body, "b32", "b32")


# ------------------------------------------------------------------------------------------------ atomics

MEMORY_SLOT = 8  # the address of an atomic is the second result slot of its own lane
SHARED_ADDRESS = "mov.u32 %w0, buffer; mov.u32 %w1, %tid.x; mad.lo.u32 %w0, %w1, 16, %w0;"

ATOMICS = [  # operation, types, minimum_sm, isa
    ("add", "u32 s32 u64 f32 f64", 75, DEFAULT_ISA),
    ("min", "u32 s32 u64 s64", 75, DEFAULT_ISA),
    ("max", "u32 s32 u64 s64", 75, DEFAULT_ISA),
    ("and", "b32 b64", 75, DEFAULT_ISA),
    ("or", "b32 b64", 75, DEFAULT_ISA),
    ("xor", "b32 b64", 75, DEFAULT_ISA),
    ("inc", "u32", 75, DEFAULT_ISA),
    ("dec", "u32", 75, DEFAULT_ISA),
    ("exch", "b32 b64", 75, DEFAULT_ISA),
    ("add.noftz", "f16x2 f16", 75, DEFAULT_ISA),
    ("add.noftz", "bf16x2 bf16", 90, DEFAULT_ISA),
]
SCOPES = ["relaxed.gpu.", "acquire.cta.", "release.sys.", "acq_rel.gpu."]


def atomic_case(space, order, form, kind, extra="", **rest):
    """Both of the result and of what is in memory afterwards."""
    bits = BITS[kind]
    name = f"atom.{order}{space + '.' if space else ''}{form}.{kind}"
    address = "[%w0]" if space == "shared" else f"[%out+{MEMORY_SLOT}]" if space else "[%l0]"
    prepare = {"shared": SHARED_ADDRESS, "global": "", "": f"add.u64 %l0, %out, {MEMORY_SLOT}; cvta.global.u64 %l0, %l0;"}[space]
    declare = ".shared .align 16 .b8 buffer[2048];\n" if space == "shared" else ""
    point = "." + space if space else ""
    body = (f"{declare}{prepare}\nst{point}.b{bits} {address}, %a;\n{name} %r, {address}, %b{extra};\nld{point}.b{bits} %s, {address};")
    operands = f"{kind} {kind}" + (f" {kind}" if extra else "")
    return make(name, body, operands, f"{kind} {kind}", **rest)


def reduction_case(space, form, kind, **rest):
    bits = BITS[kind]
    name = f"red.{space}.{form}.{kind}"
    address = "[%w0]" if space == "shared" else "[%out]"
    declare = ".shared .align 16 .b8 buffer[2048];\n" + SHARED_ADDRESS if space == "shared" else ""
    body = f"{declare}\nst.{space}.b{bits} {address}, %a;\n{name} {address}, %b;\nld.{space}.b{bits} %r, {address};"
    return make(name, body, f"{kind} {kind}", kind, **rest)


def compare_and_swap(space, bits):
    """Half of the lanes find what they compare with."""
    name = f"atom.{space}.cas.b{bits}"
    inputs = make_inputs(name, [f"b{bits}"] * 3)
    inputs[::2, 1] = inputs[::2, 0]
    return atomic_case(space, "", "cas", f"b{bits}", ", %c", inputs=inputs)


def atomics():
    for space in ("global", "shared"):
        for form, kinds, sm, isa in ATOMICS:
            for kind in kinds.split():
                yield atomic_case(space, "", form, kind, minimum_sm=sm, isa=isa)
                if form != "exch":
                    yield reduction_case(space, form, kind, minimum_sm=sm, isa=isa)
        for bits in (16, 32, 64):
            yield compare_and_swap(space, bits)
    for order in SCOPES:
        yield atomic_case("global", order, "add", "u32")
        yield atomic_case("", order, "max", "s64")
    yield atomic_case("", "", "add", "f32")
    yield from atomics_of_sixteen_bytes()
    yield from vector_atomics()
    yield from shared_address_atomics()


def atomics_of_sixteen_bytes():
    place = {"minimum_sm": 90, "isa": "8.4"}
    start = ".shared .align 16 .b8 buffer[2048];\n.reg .b128 %old, %new, %want;\n" + SHARED_ADDRESS
    start += "\nst.shared.v2.b64 [%w0], {%a, %b};\nmov.b128 %new, {%c, %d};"
    end = "mov.b128 {%r, %s}, %old;\nld.shared.v2.b64 {%t, %u}, [%w0];"
    four = "b64 b64 b64 b64"
    yield make("atom.shared.exch.b128", f"{start}\natom.shared.exch.b128 %old, [%w0], %new;\n{end}", four, four, **place)
    for name, want in (("equal", "{%a, %b}"), ("other", "{%a, %d}")):
        body = f"{start}\nmov.b128 %want, {want};\natom.shared.cas.b128 %old, [%w0], %want, %new;\n{end}"
        yield make(f"atom.shared.cas.b128.{name}", body, four, four, **place)


def vector_atomics():
    place = {"minimum_sm": 90, "isa": "8.1"}
    for kind, form in (("f32", "add"), ("f16x2", "add.noftz"), ("bf16x2", "add.noftz")):
        body = (f"st.global.v2.b32 [%out+16], {{%a, %b}};\natom.global.{form}.v2.{kind} {{%r, %s}}, [%out+16], {{%c, %d}};\n"
                "ld.global.v2.b32 {%t, %u}, [%out+16];")
        yield make(f"atom.global.{form}.v2.{kind}", body, " ".join([kind] * 4), " ".join([kind] * 4), **place)


def shared_address_atomics():
    """All lanes of a block on one address: the final value is checked alone, for the order is not known."""
    for space, (form, kinds) in itertools.product(("global", "shared"), (
            ("add", "u32 s32 u64"), ("min", "u32 s32 u64 s64"), ("max", "u32 s32 u64 s64"), ("and", "b32 b64"), ("or", "b32 b64"),
            ("xor", "b32 b64"), ("inc", "u32"), ("dec", "u32"))):
        for kind in kinds.split():
            bits = BITS[kind]
            declare = ".shared .align 8 .b8 buffer[8];\n" if space == "shared" else ""
            address = "mov.u32 %w0, buffer;"
            if space == "global":  # the result slot of the block's first lane
                address = (f"mov.u32 %w1, %ctaid.x; mul.lo.u32 %w1, %w1, {128 * 8}; ld.param.u64 %l0, [out]; "
                           "cvta.to.global.u64 %l0, %l0; cvt.u64.u32 %l1, %w1; add.u64 %l0, %l0, %l1;")
            where = "[%w0]" if space == "shared" else "[%l0]"
            # inc and dec wrap at a bound which all lanes share: with different ones the order would matter
            value = ("mov.b32 %a, 50;" if form in ("inc", "dec") else "")
            body = (f"{declare}{address}\nmov.u32 %w2, %tid.x; setp.eq.u32 %p, %w2, 0;\n@%p st.{space}.b{bits} {where}, %a;\n"
                    f"bar.sync 0;\n{value}\n@!%p red.{space}.{form}.{kind} {where}, %a;\nmembar.gl;\nbar.sync 0;\n"
                    f"ld.{space}.b{bits} %r, {where};\nbar.sync 0;")
            yield make(f"red.{space}.{form}.{kind}.one_address", body, kind, kind, inputs=block_inputs(form + kind, kind))


def block_inputs(name, kind, lanes=256):
    rng = np.random.RandomState(zlib.crc32(name.encode()))
    edges = edge_values(kind, rng)
    return np.where(rng.randint(0, 2, lanes) == 0, edges[rng.randint(0, len(edges), lanes)],
                    random_bits(rng, lanes, BITS[kind])).reshape(-1, 1)


# ------------------------------------------------------------------------------------------------- memory

def loads_and_stores():
    for kind in ("u8", "s8", "b8", "u16", "s16", "b16", "u32", "s32", "b32", "u64", "s64", "b64"):
        for result in ("b16", "b32", "b64"):
            if BITS[result] < BITS[kind]:
                continue
            offset = 4 if BITS[kind] == 32 else BITS[kind] // 8 % 8
            yield make(f"ld.global.{kind}.into_{result}", f"ld.global.{kind} %r, [%in+{offset}];", "b64", result, form=f"ld.global.{kind}", lanes=128)
            # an untouched byte beside what is stored would show a store that is too wide
            body = f"mov.b64 %l0, -1; st.global.b64 [%out+8], %l0;\ncvt.u{BITS[result]}.u64 %r, %a;\nst.global.{kind} [%out+8], %r;\nld.global.b64 %s, [%out+8];"
            yield make(f"st.global.{kind}.from_{result}", body.replace(f"cvt.u{BITS[result]}.u64", "mov.b64") if result == "b64" else body,
                       "b64", f"{result} b64", form=f"st.global.{kind}", lanes=128)
    for modifier in ("ca", "cg", "cs", "cv", "nc", "volatile", "relaxed.gpu", "acquire.sys", "weak", "L1::no_allocate", "nc.L2::128B"):
        before = modifier in ("volatile", "relaxed.gpu", "acquire.sys", "weak")
        form = f"ld.{modifier}.global.b32" if before else f"ld.global.{modifier}.b32"
        yield make(form, f"{form} %r, [%in];", "b64", "b32", lanes=64)
    for modifier in ("wb", "cg", "cs", "wt", "volatile", "relaxed.gpu", "release.sys", "weak"):
        before = modifier in ("volatile", "relaxed.gpu", "release.sys", "weak")
        form = f"st.{modifier}.global.b32" if before else f"st.global.{modifier}.b32"
        yield make(form, f"{form} [%out+8], %a;\nld.global.b32 %s, [%out+8];\nmov.b32 %r, %s;", "b32", "b32 b32", lanes=64)
    yield from vector_loads_and_stores()


def vector_loads_and_stores():
    for count, kind in itertools.product((2, 4), ("b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "f32", "b64", "u64", "f64")):
        bits = BITS[kind]
        if count * bits > 128:
            continue
        wide = register_bits(kind)
        registers = ", ".join(result_names(count))
        for space in ("global", "shared", "local"):
            declare, address = "", "[%out+32]" if count == 4 else "[%out+16]"
            size = count * 8
            if space != "global":
                declare = f".{space} .align 16 .b8 buffer[2048];\n"
                address = "[%w0]"
                declare += "mov.u32 %w0, buffer; mov.u32 %w1, %tid.x; and.b32 %w1, %w1, 127; mad.lo.u32 %w0, %w1, 16, %w0;\n"
            operands = ", ".join(operand_names(count))
            body = (f"{declare}st.{space}.v{count}.{kind} {address}, {{{operands}}};\n"
                    f"ld.{space}.v{count}.{kind} {{{registers}}}, {address};")
            if space == "global":  # over its own result slots, at an aligned address
                body = body.replace(address, "[%out]")
            yield make(f"ldst.{space}.v{count}.{kind}", body, " ".join([f"b{wide}"] * count), " ".join([f"b{wide}"] * count),
                       form=f"ld.{space}.v{count}.{kind} and st", lanes=64)


LOCAL_ARRAY = """\
.local .align 8 .b8 stack[64];
mov.u32 %w0, stack;
mov.u32 %w1, 0;
FILL:
mad.lo.u32 %w2, %w1, 4, %w0; mad.lo.u32 %w3, %w1, %w1, %a; st.local.u32 [%w2], %w3;
add.u32 %w1, %w1, 1; setp.lt.u32 %p, %w1, 16; @%p bra FILL;
and.b32 %w4, %b, 15; mad.lo.u32 %w2, %w4, 4, %w0; ld.local.u32 %r, [%w2];
cvt.u64.u32 %l0, %w2; cvta.local.u64 %l1, %l0; ld.u32 %s, [%l1]; cvta.to.local.u64 %l2, %l1; ld.local.s16 %t, [%l2];
"""
SHARED_EXCHANGE = """\
mov.u32 %w0, {name}_memory; mov.u32 %w1, %tid.x; mad.lo.u32 %w2, %w1, 4, %w0; st.shared.u32 [%w2], %a;
bar.sync 0;
sub.u32 %w3, 127, %w1; mad.lo.u32 %w2, %w3, 4, %w0; ld.shared.u32 %r, [%w2];
mov.u64 %l0, {name}_memory; cvta.shared.u64 %l1, %l0; mul.wide.u32 %l2, %w1, 4; add.u64 %l1, %l1, %l2; ld.u32 %s, [%l1];
mov.u32 %t, %dynamic_smem_size;
"""


def memory_spaces():
    yield make("local.array", LOCAL_ARRAY, "u32 u32", "u32 u32 b32", lanes=128)
    yield make("shared.dynamic", SHARED_EXCHANGE.format(name="shared_dynamic"), "u32", "u32 u32 u32", inputs=block_inputs("dynamic", "u32"),
               shared_bytes=512, module_text=".extern .shared .align 16 .b8 shared_dynamic_memory[];\n")
    yield make("shared.static", SHARED_EXCHANGE.format(name="shared_static"), "u32", "u32 u32 u32", inputs=block_inputs("static", "u32"),
               module_text=".shared .align 16 .b8 shared_static_memory[512];\n")
    words = ", ".join(str((37 * k * k + 11) & 0xff) for k in range(64))
    body = ("mov.u64 %l0, {name}_table; and.b32 %w0, %a, 63; cvt.u64.u32 %l1, %w0; add.u64 %l2, %l0, %l1; ld.{space}.u8 %r, [%l2];\n"
            "ld.{space}.s8 %s, [{name}_table+17]; cvta.{space}.u64 %l3, %l2; ld.u8 %t, [%l3];\nld.{space}.v2.u32 {{%u, %w1}}, [{name}_table+8];")
    for space in ("const", "global"):
        name = f"table_{space}"
        yield make(name, body.format(name=name, space=space), "u32", "b32 b32 b32 b32", lanes=128,
                   module_text=f".{space} .align 8 .b8 {name}_table[64] = {{{words}}};\n")
    text = ".const .f32 constants_floats[4] = {0f3F800000, 0fC0490FDB, 1.5, 0d3FF8000000000000};\n.global .u64 constants_pointer = constants_target;\n"
    text = ".global .align 4 .u32 constants_target[2] = {77, 0xfffffff0};\n.const .u32 constants_words[2][2] = {{1, 2}, {3}};\n" + text
    body = ("ld.const.f32 %r, [constants_floats+4]; ld.const.f32 %s, [constants_floats+12]; ld.const.u32 %w0, [constants_words+8]; "
            "ld.const.u32 %w1, [constants_words+12];\nshl.b32 %w1, %w1, 8; or.b32 %t, %w0, %w1;\n"
            "ld.global.u64 %l0, [constants_pointer]; ld.global.u32 %u, [%l0+4];")
    yield make("constants", body, "u32", "f32 f32 u32 u32", lanes=32, module_text=text, compare=EXACT)
    yield from address_spaces()


def address_spaces():
    declare = ".shared .align 8 .b8 buffer[8]; .local .align 8 .b8 stack[8];\n"
    spaces = {"global": "mov.u64 %l0, %in; cvta.global.u64 %l0, %l0;", "shared": "mov.u64 %l0, buffer; cvta.shared.u64 %l0, %l0;",
              "local": "mov.u64 %l0, stack; cvta.local.u64 %l0, %l0;", "const": "mov.u64 %l0, isspacep_const; cvta.const.u64 %l0, %l0;"}
    for space, address in spaces.items():
        body = declare + "st.local.u32 [stack], 1;\n" + address
        body += "\nisspacep.global %r, %l0; isspacep.shared %s, %l0; isspacep.local %t, %l0; isspacep.const %u, %l0;"
        text = ".const .u32 isspacep_const = 5;\n" if space == "const" else ""
        yield make(f"isspacep.of_{space}", body, "u32", "pred pred pred pred", lanes=32, module_text=text)


ASYNC = """\
.shared .align 16 .b8 buffer[2048];
mov.u32 %w0, buffer; mov.u32 %w1, %tid.x; and.b32 %w1, %w1, 127; mad.lo.u32 %w0, %w1, 16, %w0;
mov.b64 %l0, 0x7777777777777777; st.shared.v2.b64 [%w0], {{%l0, %l0}};
{copy}
{wait}
ld.shared.v2.b64 {{%r, %s}}, [%w0];
"""


def asynchronous_copies():
    waits = {"group": "cp.async.commit_group;\ncp.async.wait_group 0;", "all": "cp.async.wait_all;",
             "older": "cp.async.commit_group;\ncp.async.commit_group;\ncp.async.wait_group 1;"}

    def copy(name, text, wait="group", operands="b64 b64 u32 pred", isa=DEFAULT_ISA):
        body = ASYNC.format(copy=text, wait=waits[wait])
        return make(name, body, operands, "b64 b64", minimum_sm=80, lanes=128, isa=isa)

    operands = "b64 b64 u32 pred"
    for level, size in (("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)):
        start = f"cp.async.{level}.shared.global"
        for wait in waits:
            yield copy(f"{start}.{size}.{wait}", f"{start} [%w0], [%in], {size};", wait)
        sized = f"b64 b64 u32:below{size + 1} pred"
        yield copy(f"{start}.{size}.src_size", f"{start} [%w0], [%in], {size}, %c;", operands=sized)
        yield copy(f"{start}.{size}.ignore", f"{start} [%w0], [%in], {size}, %d;")
        yield copy(f"{start}.{size}.prefetch", f"{start}.L2::128B [%w0], [%in], {size};")
        yield copy(f"{start}.{size}.predicated", f"@%d {start} [%w0], [%in], {size};", operands=operands)
    barrier = """\
.shared .align 16 .b8 buffer[2048]; .shared .align 8 .b64 signal;
mov.u32 %w0, buffer; mov.u32 %w1, %tid.x; mad.lo.u32 %w0, %w1, 16, %w0;
setp.eq.u32 %p, %w1, 0; @%p mbarrier.init.shared.b64 [signal], 128;
bar.sync 0;
cp.async.ca.shared.global [%w0], [%in], 16;
cp.async.mbarrier.arrive.noinc.shared.b64 [signal];
mov.u32 %w2, 0;
AGAIN:
mbarrier.test_wait.parity.shared.b64 %q, [signal], 0;
add.u32 %w2, %w2, 1; setp.gt.u32 %o, %w2, 1000000; or.pred %q, %q, %o;
@!%q bra AGAIN;
xor.b32 %w3, %w1, 1; mov.u32 %w0, buffer; mad.lo.u32 %w0, %w3, 16, %w0;
ld.shared.v2.b64 {%r, %s}, [%w0];
"""
    yield make("cp.async.mbarrier.arrive.noinc", barrier, "b64 b64", "b64 b64", minimum_sm=80,
               inputs=np.concatenate([block_inputs("mbarrier one", "b64"), block_inputs("mbarrier two", "b64")], axis=1))
    counting = """\
.shared .align 8 .b64 signal;
mov.u32 %w1, %tid.x; setp.eq.u32 %p, %w1, 0; @%p mbarrier.init.shared.b64 [signal], 128;
bar.sync 0;
mbarrier.pending_count.b64 %r, %a;
mbarrier.arrive.shared.b64 %l0, [signal];
mov.u32 %w2, 0;
AGAIN:
mbarrier.test_wait.shared.b64 %q, [signal], %l0;
add.u32 %w2, %w2, 1; setp.gt.u32 %o, %w2, 1000000; or.pred %q, %q, %o;
@!%q bra AGAIN;
selp.u32 %s, 1, 0, %o;
"""
    counting = counting.replace("mbarrier.pending_count.b64 %r, %a;\n", "mov.u32 %r, 0;\n")
    yield make("mbarrier.arrive.test_wait", counting, "b64", "u32 u32", minimum_sm=80, inputs=block_inputs("counting", "b64"))


# ------------------------------------------------------------------------------------- registers, barriers

SPECIAL_REGISTERS = [
    "tid.x", "tid.y", "tid.z", "ntid.x", "ntid.y", "ntid.z", "ctaid.x", "ctaid.y", "ctaid.z", "nctaid.x", "nctaid.y", "nctaid.z",
    "laneid", "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt", "dynamic_smem_size", "total_smem_size",
]


def moves():
    lanes = np.zeros((6 * 128, 1), dtype=np.uint64)
    body = "\n".join(f"mov.u32 {register}, %{name};" for name, register in zip(SPECIAL_REGISTERS, result_names(len(SPECIAL_REGISTERS))))
    yield make("special.registers", body, "u32", " ".join(["u32"] * len(SPECIAL_REGISTERS)), inputs=lanes, grid=(2, 3, 1), block=(8, 4, 4))
    yield make("special.registers.z", body, "u32", " ".join(["u32"] * len(SPECIAL_REGISTERS)), inputs=lanes[:4 * 60], grid=(1, 2, 2),
               block=(5, 3, 4), shared_bytes=256)
    body = "mov.u32 %r, WARP_SZ; mov.u64 %l0, %clock64; mov.u64 %l1, %clock64; setp.le.u64 %s, %l0, %l1; mov.u32 %w0, %warpid; setp.lt.u32 %t, %w0, 64;"
    yield make("special.plausible", body, "u32", "u32 pred pred", lanes=64)
    halves = "b16 b16"
    yield make("mov.b32.pack", "mov.b32 %r, {%a, %b};", halves, "b32")
    yield make("mov.b32.unpack", "mov.b32 {%r, %s}, %a;", "b32", halves)
    yield make("mov.b32.unpack.sink", "mov.b32 {_, %r}, %a;", "b32", "b16")
    yield make("mov.b64.pack", "mov.b64 %r, {%a, %b};", "b32 b32", "b64")
    yield make("mov.b64.unpack", "mov.b64 {%r, %s}, %a;", "b64", "b32 b32")
    yield make("mov.b64.pack.of_four", "mov.b64 %r, {%a, %b, %c, %d};", "b16 b16 b16 b16", "b64")
    yield make("mov.b64.unpack.into_four", "mov.b64 {%r, %s, %t, %u}, %a;", "b64", "b16 b16 b16 b16")
    yield make("mov.b128", ".reg .b128 %wide;\nmov.b128 %wide, {%a, %b};\nmov.b128 {%s, %r}, %wide;", "b64 b64", "b64 b64", isa="8.3")
    for kind in ("pred", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"):
        yield simple(f"mov.{kind}", kind, kind, compare=EXACT, lanes=128)
    body = ("mov.f32 %r, 0f7FC12345; mov.f64 %l0, 0d7FF0000000000001; mov.b64 %s, %l0; mov.f32 %t, 0.1; mov.u32 %u, 0b1011;\n"
            "add.u32 %u, %u, 017; add.u32 %u, %u, 0xfFU; add.s32 %u, %u, -(3 + 4 * 2);")
    yield make("immediates", body, "u32", "f32 b64 f32 u32", lanes=32, compare=EXACT)
    body = ".reg .v4 .f32 %vector; .reg .v2 .u16 %pair;\nmov.v4.b32 %vector, {%a, %b, %c, %d}; mov.b32 %r, %vector.w; mov.b32 %s, %vector.x; mov.b32 %t, %vector.g;"
    yield make("vector.registers", body.replace(" .reg .v2 .u16 %pair;", ""), "f32 f32 f32 f32", "f32 f32 f32", lanes=64, compare=EXACT)


def barriers():
    start = ".shared .align 16 .b8 buffer[1024];\nmov.u32 %w1, %tid.x; mov.u32 %w0, buffer; mad.lo.u32 %w2, %w1, 4, %w0;\n"
    inputs = block_inputs("barriers", "u32")
    neighbour = "add.u32 %w3, %w1, 32; and.b32 %w3, %w3, 127; mad.lo.u32 %w4, %w3, 4, %w0;\n"
    for name in ("bar.sync 0;", "barrier.sync 1;", "barrier.sync.aligned 3, 128;", "bar.sync 15, 128;", "bar.cta.sync 2;"):
        body = start + neighbour + f"st.shared.u32 [%w2], %a;\n{name}\nld.shared.u32 %r, [%w4];"
        yield make(name, body, "u32", "u32", form=name.rstrip(";"), inputs=inputs)
    # two pairs of warps, each with a barrier of its own
    body = start + ("st.shared.u32 [%w2], %a;\nshr.u32 %w3, %w1, 6; add.u32 %w3, %w3, 4;\nbarrier.sync %w3, 64;\n"
                    "xor.b32 %w5, %w1, 32; mad.lo.u32 %w4, %w5, 4, %w0; ld.shared.u32 %r, [%w4];")
    yield make("barrier.sync.of_half", body, "u32", "u32", inputs=inputs)
    # warps 0 and 1 write and arrive, warps 2 and 3 wait and read
    body = start + ("setp.lt.u32 %p, %w1, 64; mov.u32 %r, %a;\n@!%p bra READ;\nst.shared.u32 [%w2], %a;\nbar.arrive 5, 128;\nbra.uni LAST;\n"
                    "READ:\nbar.sync 5, 128;\nsub.u32 %w3, %w1, 64; mad.lo.u32 %w4, %w3, 4, %w0; ld.shared.u32 %r, [%w4];\nLAST:")
    yield make("bar.arrive", body, "u32", "u32", inputs=inputs)
    for chance, name in (([0, 1], "mixed"), ([0], "none"), ([1], "all")):
        rng = np.random.RandomState(17)
        lanes = np.array(chance, dtype=np.uint64)[rng.randint(0, len(chance), 256)].reshape(-1, 1)
        yield make(f"bar.red.popc.{name}", "bar.red.popc.u32 %r, 0, %a;", "pred", "u32", inputs=lanes)
        yield make(f"bar.red.popc.not.{name}", "bar.red.popc.u32 %r, 1, 128, !%a;", "pred", "u32", inputs=lanes)
        for form in ("and", "or"):
            yield make(f"bar.red.{form}.{name}", f"bar.red.{form}.pred %r, 2, %a;", "pred", "pred", inputs=lanes)
            yield make(f"barrier.red.{form}.{name}", f"barrier.red.{form}.pred %r, 2, 128, !%a;", "pred", "pred", inputs=lanes)
    for name in ("membar.cta", "membar.gl", "membar.sys", "fence.sc.cta", "fence.acq_rel.gpu", "fence.acq_rel.sys", "fence.sc.sys", "nanosleep.u32 20"):
        yield make(name, f"mov.u32 %r, %a;\n{name};", "u32", "u32", form=name, lanes=32)
    for form, operand in (("prefetch.global.L1", " [%in]"), ("prefetch.global.L2", " [%in]"), ("prefetchu.L1", " [%l0]"), ("pmevent", " 3")):
        yield make(form, f"mov.u32 %r, %a; cvta.global.u64 %l0, %in;\n{form}{operand};", "u32", "u32", form=form, lanes=32)
    for form in ("griddepcontrol.wait", "griddepcontrol.launch_dependents", "fence.proxy.async"):
        yield make(form, f"mov.u32 %r, %a;\n{form};", "u32", "u32", form=form, lanes=32, minimum_sm=90, isa="8.0")
    body = "mov.u64 %l0, %globaltimer; mov.u64 %l1, %globaltimer; setp.ge.u64 %r, %l1, %l0;"
    yield make("globaltimer", body, "u32", "pred", lanes=32)


COLLATZ = """\
mov.u32 %r, 0; and.b32 %w0, %a, 0xffff; max.u32 %w0, %w0, 1;
LOOP:
setp.eq.u32 %p, %w0, 1; @%p bra OUT;
and.b32 %w1, %w0, 1; setp.eq.u32 %q, %w1, 0; @%q bra EVEN;
mad.lo.u32 %w0, %w0, 3, 1; bra NEXT;
EVEN:
shr.u32 %w0, %w0, 1;
NEXT:
add.u32 %r, %r, 1; setp.lt.u32 %p, %r, 200; @%p bra LOOP;
OUT:
"""
BRANCH_TABLE = """\
and.b32 %w0, %a, 3; mov.u32 %r, 99;
TARGETS: .branchtargets ZERO, ONE, TWO, THREE;
brx.idx %w0, TARGETS;
ZERO: mov.u32 %r, 10; bra JOIN;
ONE: add.u32 %r, %r, 1;
TWO: mul.lo.u32 %r, %r, 3; bra JOIN;
THREE: sub.u32 %r, %r, 7; @%p bra JOIN;
JOIN:
"""
FUNCTIONS = """\
.func (.reg .b32 %value) calls_square(.reg .b32 %x)
{
  mul.lo.u32 %value, %x, %x;
  ret;
}
.func (.param .b32 value) calls_structure(.param .align 8 .b8 pair[16], .param .b32 flag)
{
  .reg .b32 %x<4>; .reg .b64 %y<3>; .reg .pred %p;
  ld.param.b64 %y0, [pair]; ld.param.b64 %y1, [pair+8]; ld.param.b32 %x0, [flag];
  setp.eq.u32 %p, %x0, 0; @%p bra SIMPLE;
  xor.b64 %y0, %y0, %y1;
SIMPLE:
  cvt.u32.u64 %x1, %y0; st.param.b32 [value], %x1;
  ret;
}
.func (.param .b32 value) calls_factorial(.param .b32 x)
{
  .reg .b32 %x<4>; .reg .pred %p;
  ld.param.b32 %x0, [x]; mov.u32 %x2, 1;
AGAIN:
  setp.le.u32 %p, %x0, 1; @%p bra LAST;
  mul.lo.u32 %x2, %x2, %x0; sub.u32 %x0, %x0, 1; bra AGAIN;
LAST:
  st.param.b32 [value], %x2;
  @!%p trap;
  ret;
}
"""
CALLS = """\
call.uni (%r), calls_square, (%a);
and.b32 %w0, %a, 1;
{ .param .align 8 .b8 first[16]; .param .b32 second; .param .b32 result;
  cvt.u64.u32 %l0, %a; mul.lo.u64 %l1, %l0, 5; st.param.b64 [first], %l0; st.param.b64 [first+8], %l1; st.param.b32 [second], %w0;
  call (result), calls_structure, (first, second);
  ld.param.b32 %s, [result]; }
setp.eq.u32 %p, %w0, 0; mov.u32 %t, 0;
{ .param .b32 first; .param .b32 result;
  and.b32 %w1, %a, 15; st.param.b32 [first], %w1;
  @%p call (result), calls_factorial, (first);
  ld.param.b32 %w2, [result]; @%p mov.u32 %t, %w2; }
"""


def control_flow():
    yield make("collatz", COLLATZ, "u32", "u32", form="divergent loop")
    yield make("brx.idx", BRANCH_TABLE.replace("THREE: sub", "THREE: setp.eq.u32 %p, %w0, %w0; sub"), "u32", "u32")
    yield make("call", CALLS, "u32", "u32 u32 u32", module_text=FUNCTIONS)
    body = "setp.gt.s32 %p, %a, %b; mov.u32 %r, 5; @%p mov.u32 %r, %a; @!%p mov.u32 %r, %b; mov.u32 %s, 1; @%p exit; mov.u32 %s, 2;"
    yield make("predicated", body.replace("@%p exit; ", ""), "s32 s32", "u32 u32", form="@%p, @!%p")
    body = "st.global.u32 [%out], %a; setp.lt.s32 %p, %a, 0; @%p exit;\nmov.u32 %r, 3; mov.u32 %s, 4;"
    yield make("exit", body, "s32", "u32 u32")
    body = "st.global.u32 [%out], %a; setp.lt.s32 %p, %a, 0; @%p ret;\nmov.u32 %r, 3; mov.u32 %s, 4;"
    yield make("ret.of_some", body, "s32", "u32 u32")


def random_programs():
    for name, body, function in programs.programs():
        yield make(name, body, "u32 u32 u32 u32", "u32 u32 u32 u32", form="random programs", module_text=function, lanes=256, minimum_sm=80)


# ------------------------------------------------------------------------------------------------ matrices

SMALL = {"f16": range(-4, 5), "bf16": range(-4, 5), "tf32": range(-4, 5), "f64": range(-9, 10), "f32": range(-50, 51),
         "e4m3": range(-4, 5), "e5m2": range(-4, 5)}  # sums of their products are exact in any order
MATRIX_BOUNDS = {"f32": 2.0 ** -12, "f16": 2.0 ** -5, "f64": 2.0 ** -44}  # for products of up to 64 pairs in [-2, 2]


def element_bits(kind):
    return {"e4m3": 8, "e5m2": 8, "s4": 4, "u4": 4, "b1": 1}.get(kind) or BITS[kind]


def matrix_values(kind, rng, count, register, style):
    """`count` registers of `register` bits with elements of a kind; style is small, uniform, special or any."""
    bits = element_bits(kind)
    columns = []
    for _ in range(max(register // bits, 1)):
        if kind not in FORMATS or style == "any":
            columns.append(random_bits(rng, count, bits))
        elif style == "uniform":
            columns.append(uniform_bits(kind, rng, count, -2, 2))
        else:
            choice = small_float_bits(kind, SMALL[kind]) & np.uint64((1 << bits) - 1)
            if style == "special":  # seldom, so that most sums have one at most
                exponent_bits, fraction_bits = FORMATS[kind]
                infinity = ((1 << exponent_bits) - 1) << fraction_bits
                special = array([infinity, infinity | 1 << (bits - 1), infinity + (1 << (fraction_bits - 1))], bits)
                choice = np.concatenate([np.tile(choice, 8), special])
            columns.append(choice[rng.randint(0, len(choice), count)])
    return pack(columns, bits)


@dataclass
class Multiply:
    """One form of mma.sync: registers per lane of each fragment, with their types."""
    form: str
    a: tuple  # element type, registers
    b: tuple
    c: tuple
    minimum_sm: int = 80
    isa: str = DEFAULT_ISA


def multiply_inputs(multiply, style, warps, seed):
    rng = np.random.RandomState(zlib.crc32((multiply.form + style + str(seed)).encode()))
    columns = []
    for kind, registers in (multiply.a, multiply.b, multiply.c):
        width = 64 if kind == "f64" else 32
        for _ in range(registers):
            if kind == "s32":
                values = random_bits(rng, warps * 32, 32)
                values = np.where(rng.randint(0, 2, warps * 32) == 0, values, values & np.uint64(0xffff))
            else:
                values = matrix_values(kind, rng, warps * 32, width, style)
            columns.append(values)
    return np.stack(columns, axis=1)


def multiply_case(multiply, style, warps=4):
    counts = [fragment[1] for fragment in (multiply.a, multiply.b, multiply.c)]
    kind, registers = multiply.c
    width = "b64" if kind == "f64" else "b32"
    result = {"f16": "f16x2"}.get(kind, kind)
    operand = "b64" if multiply.a[0] == "f64" else "b32"
    names = operand_names(sum(counts))
    groups = ["{" + ", ".join(result_names(registers)) + "}"]
    groups += ["{" + ", ".join(names[start:start + count]) + "}" for start, count in zip((0, counts[0], counts[0] + counts[1]), counts)]
    operands = " ".join([operand] * (counts[0] + counts[1]) + [width] * counts[2])
    compare, bound = None, {}
    if style == "uniform":  # sums of products of 8 bits are kept with few bits
        compare, bound = APPROX, {"absolute": 2.0 ** -5 if multiply.a[0] in ("e4m3", "e5m2") else MATRIX_BOUNDS[kind]}
    return make(f"{multiply.form}.{style}", f"{multiply.form} {', '.join(groups)};", operands, " ".join([result] * registers), form=multiply.form,
                inputs=multiply_inputs(multiply, style, warps, 0), minimum_sm=multiply.minimum_sm, isa=multiply.isa, compare=compare, bound=bound)


def float_multiplies():
    def form(shape, d, a, b, c):
        return f"mma.sync.aligned.{shape}.row.col.{d}.{a}.{b}.{c}"

    for shape, a, b, sm in (("m16n8k8", 2, 1, 75), ("m16n8k16", 4, 2, 80)):
        yield Multiply(form(shape, "f32", "f16", "f16", "f32"), ("f16", a), ("f16", b), ("f32", 4), sm)
        yield Multiply(form(shape, "f16", "f16", "f16", "f16"), ("f16", a), ("f16", b), ("f16", 2), sm)
        yield Multiply(form(shape, "f32", "bf16", "bf16", "f32"), ("bf16", a), ("bf16", b), ("f32", 4))
    for shape, a, b in (("m16n8k4", 2, 1), ("m16n8k8", 4, 2)):
        yield Multiply(form(shape, "f32", "tf32", "tf32", "f32"), ("tf32", a), ("tf32", b), ("f32", 4))
    for shape, a, b, c, sm in (("m8n8k4", 1, 1, 2, 80), ("m16n8k4", 2, 1, 4, 90), ("m16n8k8", 4, 2, 4, 90), ("m16n8k16", 8, 4, 4, 90)):
        yield Multiply(form(shape, "f64", "f64", "f64", "f64"), ("f64", a), ("f64", b), ("f64", c), sm)
    for a, b in itertools.product(("e4m3", "e5m2"), ("e4m3", "e5m2")):
        yield Multiply(form("m16n8k32", "f32", a, b, "f32"), (a, 4), (b, 2), ("f32", 4), 89, "8.4")


def integer_multiplies():
    shapes = {"8": (("m8n8k16", 1, 1, 2, 75), ("m16n8k16", 2, 1, 4, 80), ("m16n8k32", 4, 2, 4, 80)),
              "4": (("m8n8k32", 1, 1, 2, 75), ("m16n8k32", 2, 1, 4, 80), ("m16n8k64", 4, 2, 4, 80))}
    for bits, forms in shapes.items():
        for (shape, a, b, c, sm), left, right, saturate in itertools.product(forms, "us", "us", ("", ".satfinite")):
            left, right = left + bits, right + bits
            form = f"mma.sync.aligned.{shape}.row.col{saturate}.s32.{left}.{right}.s32"
            yield Multiply(form, (left, a), (right, b), ("s32", c), sm)
    for (shape, a, b, c), operation in itertools.product((("m8n8k128", 1, 1, 2), ("m16n8k128", 2, 1, 4), ("m16n8k256", 4, 2, 4)), ("xor", "and")):
        yield Multiply(f"mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.{operation}.popc", ("b1", a), ("b1", b), ("s32", c), 80)


def matrix_products():
    for multiply in float_multiplies():
        for style in ("small", "uniform") + (("special",) if multiply.a[0] != "e4m3" else ()):
            yield multiply_case(multiply, style)
    for multiply in integer_multiplies():
        yield multiply_case(multiply, "any")


MATRIX_MEMORY = """\
.shared .align 128 .b8 buffer[2048];
mov.u32 %w0, buffer; mov.u32 %w1, %tid.x; mad.lo.u32 %w2, %w1, 16, %w0;
st.shared.v4.b32 [%w2], {%a, %b, %c, %d};
bar.sync 0;
"""


def matrix_loads_and_stores():
    rng = np.random.RandomState(23)
    words = np.stack([random_bits(rng, 128, 32) for _ in range(4)], axis=1)
    four = "b32 b32 b32 b32"
    for count, transposed in itertools.product((1, 2, 4), ("", ".trans")):
        registers = ", ".join(result_names(count))
        form = f"ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16"
        # each lane gives an address of another row of its warp, 5 rows on: rows need not be in order
        address = "mov.u32 %w3, %laneid; mad.lo.u32 %w3, %w3, 5, 3; and.b32 %w3, %w3, 31; and.b32 %w4, %w1, 96; add.u32 %w3, %w3, %w4; mad.lo.u32 %w3, %w3, 16, %w0;\n"
        yield make(form, MATRIX_MEMORY + address + f"{form} {{{registers}}}, [%w3];", four, " ".join(["b32"] * count), inputs=words)
        form = f"stmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16"
        operands = ", ".join(operand_names(4)[:count])
        clear = MATRIX_MEMORY.replace("{%a, %b, %c, %d}", "{%w9, %w9, %w9, %w9}").replace("st.shared", "mov.u32 %w9, 0x11111111;\nst.shared")
        body = clear + address + f"{form} [%w3], {{{operands}}};\nbar.sync 0;\nld.shared.v4.b32 {{%r, %s, %t, %u}}, [%w2];"
        yield make(form, body, four, four, inputs=words, minimum_sm=90)
    yield make("movmatrix", "movmatrix.sync.aligned.m8n8.trans.b16 %r, %a;", "b32", "b32", inputs=words[:, :1])


# wmma: the fragments' layout is not specified, so matrices go in and out through memory. Per lane: 2 slots of
# A, 2 of B, 4 of C (a warp: 512, 512, 1024 bytes), results over the same space as C.
WARP_BASES = """\
mov.u32 %w0, %laneid; mul.lo.u32 %w1, %w0, 64; cvt.u64.u32 %l0, %w1; sub.u64 %l0, %in, %l0;
mul.lo.u32 %w1, %w0, 32; cvt.u64.u32 %l1, %w1; sub.u64 %l1, %out, %l1;
add.u64 %l2, %l0, 512; add.u64 %l3, %l0, 1024;
"""


def wmma_case(shape, left, right, kind, result, counts):
    m, n, k = (int(part) for part in shape[1:].replace("n", " ").replace("k", " ").split())
    a, b, c = [[f"%w{start + place}" for place in range(count)] for start, count in zip((16, 32, 48), counts)]
    fragments = ["{" + ", ".join(names) + "}" for names in (a, b, c)]
    strides = [k if left == "row" else m, k if right == "col" else n, n]
    body = WARP_BASES + (
        f"wmma.load.a.sync.aligned.{left}.{shape}.global.{kind} {fragments[0]}, [%l0], {strides[0]};\n"
        f"wmma.load.b.sync.aligned.{right}.{shape}.global.{kind} {fragments[1]}, [%l2], {strides[1]};\n"
        f"wmma.load.c.sync.aligned.row.{shape}.global.{result} {fragments[2]}, [%l3], {strides[2]};\n")
    types = f"{result}.{result}" if kind == "f16" else f"{result}.{kind}.{kind}.{result}"
    body += f"wmma.mma.sync.aligned.{left}.{right}.{shape}.{types} {fragments[2]}, {fragments[0]}, {fragments[1]}, {fragments[2]};\n"
    body += f"wmma.store.d.sync.aligned.row.{shape}.global.{result} [%l1], {fragments[2]}, {strides[2]};\nbar.warp.sync 0xffffffff;\n"
    body += "ld.global.v2.b64 {%r, %s}, [%out]; ld.global.v2.b64 {%t, %u}, [%out+16];"
    rng = np.random.RandomState(zlib.crc32(f"{shape}{kind}".encode()))
    columns = [matrix_values(kind, rng, 64, 64, "small") for _ in range(4)]
    columns += [matrix_values(result, rng, 64, 64, "small") for _ in range(4)]
    return make(f"wmma.{shape}.{left}.{right}.{kind}.{result}", body, " ".join(["b64"] * 8), "b64 b64 b64 b64", form=f"wmma.mma.{shape}.{types}",
                inputs=np.stack(columns, axis=1), minimum_sm=80 if kind == "bf16" else 75, compare=EXACT)


def wmma_forms():
    for left, right in itertools.product(("row", "col"), ("row", "col")):
        for shape in ("m16n16k16", "m32n8k16", "m8n32k16"):
            yield wmma_case(shape, left, right, "f16", "f32", (8, 8, 8))
        yield wmma_case("m16n16k16", left, right, "f16", "f16", (8, 8, 4))
        yield wmma_case("m16n16k16", left, right, "bf16", "f32", (4, 4, 8))
        for kind in ("u8", "s8"):
            yield wmma_case("m16n16k16", left, right, kind, "s32", (2, 2, 8))


# ---------------------------------------------------------------------------------------------- all of them

FAMILIES = [
    integer_arithmetic, carry_chains, bit_operations, permutations_and_tables, comparisons, f32_arithmetic, f64_arithmetic,
    half_arithmetic, approximations, integer_conversions, conversions_between_floats_and_integers, conversions_between_floats,
    video_instructions, shuffles, votes_and_matches, warp_reductions, atomics, loads_and_stores, memory_spaces, asynchronous_copies,
    moves, barriers, control_flow, random_programs, matrix_products, matrix_loads_and_stores, wmma_forms,
]

# Forms that ptxas 13.0 refuses for every architecture up to sm_90: tried, and not legal PTX.
refused_by_ptxas = set()


def cases():
    names = set()
    for family in FAMILIES:
        for case in family():
            if case.name in names:
                raise ValueError(f"two cases are called {case.name}")
            names.add(case.name)
            if case.name not in refused_by_ptxas:
                yield case


# ---------------------------------------------------------------------------------------------- comparison

def result_sizes(case):
    """Bytes of a stored result of each type; predicates are 0 or 1."""
    return [1 if kind == "pred" else register_bits(kind) // 8 for kind in case.results]


def compact(case, raw):
    """The bytes of the slots that the results fill, result by result, from the bytes of `out`."""
    slots = np.frombuffer(raw, dtype=np.uint8).reshape(case.lanes, len(case.results), 8)
    return np.concatenate([slots[:, place, :size].reshape(-1) for place, size in enumerate(result_sizes(case))])


def columns(case, compacted):
    """Arrays of unsigned integers, one of each result, from what `compact` returned."""
    start = 0
    for size in result_sizes(case):
        yield np.frombuffer(compacted[start:start + case.lanes * size].tobytes(), dtype=f"<u{size}")
        start += case.lanes * size


def as_floats(format_name, bits):
    """Values as f64, of bits of f16, bf16, f32, tf32, f64."""
    if format_name == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    kind = {"f16": np.float16, "f32": np.float32, "tf32": np.float32, "f64": np.float64}[format_name]
    with np.errstate(invalid="ignore"):
        return np.ascontiguousarray(bits).view(kind).astype(np.float64)


def ulps(format_name, values):
    exponent_bits, fraction_bits = FORMATS[format_name]
    _, exponents = np.frexp(np.abs(values))
    lowest = 2 - (1 << (exponent_bits - 1))
    return np.ldexp(1.0, np.maximum(exponents - 1, lowest) - fraction_bits)


def same_floats(case, format_name, got, want):
    left, right = as_floats(format_name, got), as_floats(format_name, want)
    equal = (got == want) | (np.isnan(left) & np.isnan(right))
    if case.compare != APPROX:
        return equal
    finite = np.isfinite(left) & np.isfinite(right)
    left, right = np.where(finite, left, 0), np.where(finite, right, 0)
    bound = case.bound
    allowed = bound.get("absolute", 0) + bound.get("relative", 0) * np.abs(right) + bound.get("ulp", 0) * ulps(format_name, right)
    return equal | (finite & (np.abs(left - right) <= 2 * allowed))


def same(case, got, want):
    """Of each lane: are the results (as `compact` returns them) the same, as far as they are specified?"""
    if case.compare == UNSPECIFIED:
        return np.ones(case.lanes, dtype=bool)
    result = np.ones(case.lanes, dtype=bool)
    for kind, left, right in zip(case.results, columns(case, got), columns(case, want)):
        if case.compare == EXACT or kind not in FLOATS:
            result &= left == right
        elif kind in PACKED:
            for shift in (0, 16):
                halves = [(side >> np.uint32(shift)).astype(np.uint16) for side in (left, right)]
                result &= same_floats(case, PACKED[kind], *halves)
        else:
            result &= same_floats(case, kind, left, right)
    return result
