"""A reference for what take.py stored, written from the PTX manual: check.py OUTDIR prints where they differ.

Straight-line kernels of arithmetic are interpreted one lane at a time with exact numbers (integers and
fractions); warp and matrix instructions have functions of their own. What is in neither is not checked.
Without OUTDIR it says how many cases have a reference.
"""

import argparse
import json
import math
import pathlib
import re
from fractions import Fraction

import numpy as np

import cases
from cases import BITS, FORMATS, PACKED


class NotCovered(Exception):
    """There is no reference for an instruction."""


def signed(value, bits):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def number(value, kind):
    """An integer as its type reads it."""
    bits = BITS[kind]
    return signed(value, bits) if kind[0] == "s" else value & ((1 << bits) - 1)


def clamp(value, kind):
    bits = int(kind[1:])
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def bits_of(value, bits):
    return value & ((1 << bits) - 1)


# --------------------------------------------------------------------------------------------------- floats
# A float is (sign, magnitude): a Fraction, or INFINITY, or NOT_A_NUMBER.

INFINITY, NOT_A_NUMBER = "infinity", "nan"
NAN = (0, NOT_A_NUMBER)


def decode(kind, bits):
    exponent_bits, fraction_bits = FORMATS[kind]
    sign, exponent = bits >> (exponent_bits + fraction_bits) & 1, bits >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = bits & ((1 << fraction_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    if kind == "e4m3":
        if exponent == 15 and fraction == 7:
            return NAN
    elif exponent == (1 << exponent_bits) - 1:
        return (sign, NOT_A_NUMBER if fraction else INFINITY)
    whole = fraction + (1 << fraction_bits if exponent else 0)
    return (sign, Fraction(whole) * Fraction(2) ** (max(exponent, 1) - bias - fraction_bits))


def largest(kind):
    exponent_bits, fraction_bits = FORMATS[kind]
    if kind == "e4m3":
        return Fraction(448)
    return (2 - Fraction(1, 1 << fraction_bits)) * Fraction(2) ** ((1 << (exponent_bits - 1)) - 1)


def exponent_of(magnitude):
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return exponent - 1 if Fraction(2) ** exponent > magnitude else exponent


def rounded(whole, rest, sign, mode):
    """An integer from an integer and a rest in [0, 1)."""
    if mode in ("rn", "rni"):
        return whole + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1))
    if mode == "rna":
        return whole + (rest >= Fraction(1, 2))
    away = {"rz": False, "rm": sign == 1, "rp": sign == 0}[mode[:2]]
    return whole + (rest > 0 and away)


def round_integer(value, mode):
    sign, magnitude = value
    whole = math.floor(magnitude)
    return rounded(whole, magnitude - whole, sign, mode)


def encode(kind, value, mode="rn", finite=False):
    """Bits of the value rounded to the format; finite: .satfinite."""
    exponent_bits, fraction_bits = FORMATS[kind]
    sign, magnitude = value
    low = 13 if kind == "tf32" else 0  # its last bits are zeros
    top = sign << (exponent_bits + fraction_bits)
    infinity = ((1 << exponent_bits) - 1) << fraction_bits
    if magnitude is NOT_A_NUMBER:
        return {"e4m3": 0x7f, "e5m2": 0x7f}.get(kind, infinity | ((1 << fraction_bits) - 1))
    if magnitude is INFINITY:
        return top | (largest_bits(kind) if finite else infinity)
    if magnitude == 0:
        return top
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = max(exponent_of(magnitude), 1 - bias)
    scaled = magnitude / Fraction(2) ** (exponent - fraction_bits + low)
    whole = math.floor(scaled)
    whole = rounded(whole, scaled - whole, sign, mode) << low
    if whole * Fraction(2) ** (exponent - fraction_bits) > largest(kind):
        inward = mode[:2] == "rz" or (mode[:2] == "rm" and sign == 0) or (mode[:2] == "rp" and sign == 1)
        return top | (largest_bits(kind) if finite or inward else infinity)
    return top | (((exponent + bias - 1) << fraction_bits) + whole)


def largest_bits(kind):
    exponent_bits, fraction_bits = FORMATS[kind]
    if kind == "e4m3":
        return 0x7e
    bits = (((1 << exponent_bits) - 1) << fraction_bits) - 1
    return bits & ~0x1fff if kind == "tf32" else bits


def is_nan(value):
    return value[1] is NOT_A_NUMBER


def is_infinite(value):
    return value[1] is INFINITY


def multiply(left, right):
    sign = left[0] ^ right[0]
    if is_nan(left) or is_nan(right):
        return NAN
    if is_infinite(left) or is_infinite(right):
        return NAN if 0 in (left[1], right[1]) else (sign, INFINITY)
    return (sign, left[1] * right[1])


def add(left, right, mode):
    if is_nan(left) or is_nan(right):
        return NAN
    if is_infinite(left) or is_infinite(right):
        if is_infinite(left) and is_infinite(right) and left[0] != right[0]:
            return NAN
        return left if is_infinite(left) else right
    total = (-left[1] if left[0] else left[1]) + (-right[1] if right[0] else right[1])
    if total == 0:
        return (left[0] if left[0] == right[0] else int(mode == "rm"), Fraction(0))
    return (int(total < 0), abs(total))


def divide(left, right):
    sign = left[0] ^ right[0]
    if is_nan(left) or is_nan(right) or (is_infinite(left) and is_infinite(right)) or (left[1] == 0 and right[1] == 0):
        return NAN
    if is_infinite(left) or right[1] == 0:
        return (sign, INFINITY)
    return (sign, Fraction(0)) if is_infinite(right) else (sign, left[1] / right[1])


def square_root(value):
    """Exact to more bits than any format has, and never a tie by mistake."""
    if is_nan(value) or value[1] == 0:
        return value
    if value[0]:
        return NAN
    if is_infinite(value):
        return value
    shift = 2 * max(0, 160 - exponent_of(value[1]) // 2)
    scaled = value[1] * (1 << shift)
    whole = math.isqrt(math.floor(scaled))
    exact = Fraction(whole) ** 2 == scaled
    return (0, (whole + (0 if exact else Fraction(1, 2))) / Fraction(1 << (shift // 2)))


def key(value):
    """For an order with -0 below +0."""
    sign, magnitude = value
    size = (1, 0) if magnitude is INFINITY else (0, magnitude)
    return (1, *size) if sign == 0 else (-1, -size[0], -size[1])


def flush(kind, value):
    exponent_bits, _ = FORMATS[kind]
    if isinstance(value[1], Fraction) and value[1] < Fraction(2) ** (2 - (1 << (exponent_bits - 1))):
        return (value[0], Fraction(0))
    return value


def finish(kind, value, modifiers, mode="rn"):
    """The result's bits, with what .ftz, .sat and .relu do to it."""
    bits = encode(kind, value, mode, "satfinite" in modifiers)
    result = decode(kind, bits)
    if "ftz" in modifiers:
        result = flush(kind, result)
    if "sat" in modifiers:
        if is_nan(result) or result[0]:
            result = (0, Fraction(0))
        elif is_infinite(result) or result[1] > 1:
            result = (0, Fraction(1))
    if "relu" in modifiers and not is_nan(result) and result[0]:
        result = (0, Fraction(0))
    return encode(kind, result, "rz", kind in ("e4m3", "e5m2"))


def rounding_of(modifiers):
    return next((part for part in modifiers if part in ("rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi")), "rn")


def smaller_or_larger(opcode, kind, modifiers, left, right):
    sign = left[0] ^ right[0]
    if "xorsign" in modifiers:
        left, right = (0, left[1]), (0, right[1])
    if is_nan(left) or is_nan(right):
        result = NAN if "NaN" in modifiers or (is_nan(left) and is_nan(right)) else right if is_nan(left) else left
    else:
        result = (min if opcode == "min" else max)(left, right, key=key)
    if "xorsign" in modifiers:
        result = (sign, result[1])
    return result


def float_operation(opcode, kind, modifiers, sources):
    if "approx" in modifiers or "full" in modifiers or "oob" in modifiers:
        raise NotCovered(opcode)
    mode = rounding_of(modifiers)
    values = [decode(kind, source) for source in sources]
    if "ftz" in modifiers:
        values = [flush(kind, value) for value in values]
    if opcode in ("neg", "abs"):
        result = (values[0][0] ^ 1 if opcode == "neg" else 0, values[0][1])
    elif opcode in ("min", "max"):
        result = smaller_or_larger(opcode, kind, modifiers, *values)
    elif opcode == "add":
        result = add(values[0], values[1], mode)
    elif opcode == "sub":
        result = add(values[0], (values[1][0] ^ 1, values[1][1]), mode)
    elif opcode == "mul":
        result = multiply(*values)
    elif opcode in ("fma", "mad"):
        result = add(multiply(values[0], values[1]), values[2], mode)
    elif opcode in ("div", "rcp"):
        result = divide(*([(0, Fraction(1))] + values)[-2:])
    elif opcode == "sqrt":
        result = square_root(values[0])
    else:
        raise NotCovered(opcode)
    return finish(kind, result, modifiers, mode)


def by_halves(function, sources):
    """A packed operation from one of 16 bits."""
    low = function([bits_of(source, 16) for source in sources])
    return low | function([source >> 16 & 0xffff for source in sources]) << 16


def arithmetic(opcode, modifiers, sources, state):
    kind = modifiers[-1]
    if kind in PACKED:
        return [by_halves(lambda parts: float_operation(opcode, PACKED[kind], modifiers, parts), sources)]
    if kind in FORMATS:
        return [float_operation(opcode, kind, modifiers, sources)]
    if kind in ("u16x2", "s16x2"):
        return [by_halves(lambda parts: bits_of(integer_operation(opcode, modifiers[:-1] + [kind[:3]], parts, state), 16), sources)]
    return [integer_operation(opcode, modifiers, sources, state)]


# ------------------------------------------------------------------------------------------------- integers

def integer_operation(opcode, modifiers, sources, state):
    kind = modifiers[-1]
    bits = BITS[kind]
    values = [number(source, kind) for source in sources]
    if "wide" in modifiers and len(sources) == 3:
        values[2] = sources[2]
    result = INTEGER_OPERATIONS[opcode](modifiers, values, bits, state)
    if "sat" in modifiers:
        result = clamp(result, kind)
    if "relu" in modifiers:
        result = max(result, 0)
    return result


def plain_sum(modifiers, values, bits, state, sign=1, use=False):
    carry = state.get("carry", 0) if use else 0
    if "cc" in modifiers:
        total = bits_of(values[0], bits) + sign * (bits_of(values[1], bits) + carry)
        state["carry"] = int(total < 0 or total >> bits != 0)
    return values[0] + sign * (values[1] + carry)


def product_part(modifiers, values, bits):
    product = values[0] * values[1]
    return product >> bits if "hi" in modifiers else product if "wide" in modifiers else bits_of(product, bits)


def multiply_add(modifiers, values, bits, state, use=False):
    carry = state.get("carry", 0) if use else 0
    part = product_part(modifiers, values, bits)
    if "cc" in modifiers:
        state["carry"] = (bits_of(part, bits) + bits_of(values[2], bits) + carry) >> bits
    return part + values[2] + carry


def product_of_24_bits(modifiers, values):
    left, right = ((signed if modifiers[-1][0] == "s" else bits_of)(value, 24) for value in values[:2])
    product = left * right
    return product >> 16 if "hi" in modifiers else signed(product, 32) if modifiers[-1][0] == "s" else bits_of(product, 32)


def truncated_division(values):
    quotient = abs(values[0]) // abs(values[1])
    return -quotient if (values[0] < 0) != (values[1] < 0) else quotient


INTEGER_OPERATIONS = {
    "add": lambda m, v, bits, state: plain_sum(m, v, bits, state),
    "addc": lambda m, v, bits, state: plain_sum(m, v, bits, state, use=True),
    "sub": lambda m, v, bits, state: plain_sum(m, v, bits, state, sign=-1),
    "subc": lambda m, v, bits, state: plain_sum(m, v, bits, state, sign=-1, use=True),
    "mul": lambda m, v, bits, state: product_part(m, v, bits),
    "mad": lambda m, v, bits, state: multiply_add(m, v, bits, state),
    "madc": lambda m, v, bits, state: multiply_add(m, v, bits, state, use=True),
    "mul24": lambda m, v, bits, state: product_of_24_bits(m, v),
    "mad24": lambda m, v, bits, state: product_of_24_bits(m, v) + v[2],
    "sad": lambda m, v, bits, state: v[2] + abs(v[0] - v[1]),
    "min": lambda m, v, bits, state: min(v),
    "max": lambda m, v, bits, state: max(v),
    "abs": lambda m, v, bits, state: abs(v[0]),
    "neg": lambda m, v, bits, state: -v[0],
    "div": lambda m, v, bits, state: truncated_division(v),
    "rem": lambda m, v, bits, state: v[0] - v[1] * truncated_division(v),
}


def dot_product(opcode, modifiers, sources):
    def parts(value, bits, count, kind):
        return [(signed if kind == "s32" else bits_of)(value >> (bits * place), bits) for place in range(count)]

    left_kind, right_kind = modifiers[-2:]
    if opcode == "dp4a":
        left, right = parts(sources[0], 8, 4, left_kind), parts(sources[1], 8, 4, right_kind)
    else:
        left, right = parts(sources[0], 16, 2, left_kind), parts(sources[1] >> (16 if "hi" in modifiers else 0), 8, 2, right_kind)
    return sources[2] + sum(one * other for one, other in zip(left, right))


# ----------------------------------------------------------------------------------------------------- bits

def find_highest(modifiers, value):
    kind = modifiers[-1]
    bits, value = BITS[kind], number(value, kind)
    place = (~value if value < 0 else value).bit_length() - 1
    return 0xffffffff if place < 0 else bits - 1 - place if "shiftamt" in modifiers else place


def find_nth(mask, base, offset):
    offset = signed(offset, 32)
    if offset == 0:
        return base if mask >> base & 1 else 0xffffffff
    place, count, step = base, abs(offset) - 1, 1 if offset > 0 else -1
    while 0 <= place < 32:
        if mask >> place & 1:
            if count == 0:
                return place
            count -= 1
        place += step
    return 0xffffffff


def extract(kind, value, position, length):
    bits, position, length = BITS[kind], position & 0xff, length & 0xff
    fill = 0 if kind[0] == "u" or length == 0 else value >> min(position + length - 1, bits - 1) & 1
    length_there = max(min(length, bits - position), 0)
    field = bits_of(value >> position, length_there)
    return field | (((1 << bits) - (1 << length_there)) if fill else 0)


def insert(kind, value, into, position, length):
    bits, position, length = BITS[kind], position & 0xff, length & 0xff
    mask = bits_of(((1 << length) - 1) << position, bits)
    return (into & ~mask) | ((value << position) & mask)


def mask_of(modifiers, position, length):
    clamped = "clamp" in modifiers
    if clamped and position >= 32:
        return 0
    start = position & 31
    end = 32 if clamped and length >= 32 else min(start + (length & 31), 32)
    return ((1 << end) - 1) & ~((1 << start) - 1)


def extend(modifiers, value, width):
    if width >= 32 and "clamp" in modifiers:
        return value
    width &= 31
    return 0 if width == 0 else signed(value, width) if modifiers[-1] == "s32" else bits_of(value, width)


def permute(modifiers, left, right, control):
    data = [(left | right << 32) >> (8 * place) & 0xff for place in range(8)]
    mode = modifiers[-1]
    if mode == "b32":
        picks = [control >> (4 * place) & 15 for place in range(4)]
        chosen = [(0xff if data[pick & 7] & 0x80 else 0) if pick & 8 else data[pick & 7] for pick in picks]
    else:
        c = control & 3
        places = {"f4e": [c, c + 1, c + 2, c + 3], "b4e": [c, (c - 1) % 8, (c - 2) % 8, (c - 3) % 8], "rc8": [c] * 4,
                  "ecl": [max(k, c) for k in range(4)], "ecr": [min(k, c) for k in range(4)],
                  "rc16": [2 * (c & 1), 2 * (c & 1) + 1] * 2}[mode]
        chosen = [data[place] for place in places]
    return sum(byte << (8 * place) for place, byte in enumerate(chosen))


def logic_table(left, right, third, table):
    result = 0
    for row in range(8):
        if table >> row & 1:
            result |= (left if row & 4 else ~left) & (right if row & 2 else ~right) & (third if row & 1 else ~third)
    return bits_of(result, 32)


def shift(opcode, kind, value, count):
    bits, value = BITS[kind], number(value, kind)
    count = min(bits_of(count, 32), bits)
    return value << count if opcode == "shl" else value >> count


def funnel(modifiers, low, high, count):
    count = min(count, 32) if "clamp" in modifiers else count & 31
    value = low | high << 32
    return bits_of(value << count >> 32, 32) if "l" in modifiers else bits_of(value >> count, 32)


def logic_with_predicate(modifiers, sources):
    result = logic_table(*sources[:4])
    flag = int(result != 0)
    return [result, flag & sources[4] if "and" in modifiers else flag | sources[4]]


def bit_operation(opcode, modifiers, sources, state):
    kind = modifiers[-1]
    bits = 1 if kind == "pred" else BITS.get(kind, 32)
    if opcode == "lop3" and len(sources) == 5:
        return logic_with_predicate(modifiers, sources)
    operations = {
        "and": lambda: sources[0] & sources[1], "or": lambda: sources[0] | sources[1], "xor": lambda: sources[0] ^ sources[1],
        "not": lambda: bits_of(~sources[0], bits), "cnot": lambda: int(sources[0] == 0),
        "shl": lambda: shift(opcode, kind, *sources), "shr": lambda: shift(opcode, kind, *sources),
        "popc": lambda: sources[0].bit_count(), "clz": lambda: bits - sources[0].bit_length(),
        "brev": lambda: int(f"{sources[0]:0{bits}b}"[::-1], 2), "bfind": lambda: find_highest(modifiers, sources[0]),
        "fns": lambda: find_nth(*sources), "bfe": lambda: extract(kind, *sources), "bfi": lambda: insert(kind, *sources),
        "bmsk": lambda: mask_of(modifiers, *sources), "szext": lambda: extend(modifiers, *sources),
        "prmt": lambda: permute(modifiers, *sources), "lop3": lambda: logic_table(*sources), "shf": lambda: funnel(modifiers, *sources),
        "dp4a": lambda: dot_product(opcode, modifiers, sources), "dp2a": lambda: dot_product(opcode, modifiers, sources),
    }
    return [operations[opcode]()]


# ---------------------------------------------------------------------------------------------- comparisons

def compare(comparison, kind, modifiers, left, right):
    if kind not in FORMATS:
        if comparison in ("lo", "ls", "hi", "hs"):
            comparison = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}[comparison]
        left, right = number(left, kind), number(right, kind)
    else:
        left, right = decode(kind, left), decode(kind, right)
        if "ftz" in modifiers:
            left, right = flush(kind, left), flush(kind, right)
        unordered = is_nan(left) or is_nan(right)
        if comparison in ("num", "nan"):
            return unordered == (comparison == "nan")
        if unordered:
            return len(comparison) == 3
        left, right = (key((0, value[1])) if value[1] == 0 else key(value) for value in (left, right))
    return {"eq": left == right, "ne": left != right, "lt": left < right, "le": left <= right, "gt": left > right,
            "ge": left >= right}[comparison[:2]]


def combine(modifiers, truth, sources):
    if len(sources) < 3:
        return int(truth)
    other = sources[2]
    return int({"and": truth and other, "or": truth or other, "xor": bool(truth) != bool(other)}[
        next(part for part in modifiers if part in ("and", "or", "xor"))])


def set_predicates(opcode, modifiers, sources, state):
    kind, comparison = modifiers[-1], modifiers[0]
    if kind in PACKED:
        truths = [compare(comparison, PACKED[kind], modifiers, sources[0] >> place & 0xffff, sources[1] >> place & 0xffff) for place in (0, 16)]
    else:
        truth = compare(comparison, kind, modifiers, *sources[:2])
        truths = [truth, not truth]
    return [combine(modifiers, truth, sources) for truth in truths]


ONES = {"f32": 0x3f800000, "f16": 0x3c00, "bf16": 0x3f80}


def set_value(opcode, modifiers, sources, state):
    target, kind = modifiers[-2:]
    if kind in PACKED:
        truths = set_predicates(opcode, modifiers, sources, state)
        one = ONES[PACKED[target]]
        return [one * truths[0] | one * truths[1] << 16]
    truth = combine(modifiers, compare(modifiers[0], kind, modifiers, *sources[:2]), sources)
    return [(ONES[target] if target in ONES else -1) if truth else 0]


def select(opcode, modifiers, sources, state):
    if opcode == "selp":
        return [sources[0] if sources[2] else sources[1]]
    if modifiers[-1] == "s32":
        return [sources[0] if signed(sources[2], 32) >= 0 else sources[1]]
    chooser = decode("f32", sources[2])
    if "ftz" in modifiers:
        chooser = flush("f32", chooser)
    return [sources[1] if is_nan(chooser) or (chooser[0] and chooser[1] != 0) else sources[0]]


def test_property(opcode, modifiers, sources, state):
    kind = modifiers[-1]
    value = decode(kind, sources[0])
    usual = not is_nan(value) and not is_infinite(value)
    small = usual and value[1] != 0 and flush(kind, value)[1] == 0
    return [int({"finite": usual, "infinite": is_infinite(value), "number": not is_nan(value), "notanumber": is_nan(value),
                 "normal": usual and value[1] != 0 and not small, "subnormal": small}[modifiers[0]])]


def copy_sign(opcode, modifiers, sources, state):
    top = 1 << (BITS[modifiers[-1]] - 1)
    return [(sources[0] & top) | (sources[1] & ~top)]


# ---------------------------------------------------------------------------------------------- conversions

EIGHT_BITS = {"e4m3x2": "e4m3", "e5m2x2": "e5m2"}


def convert(opcode, modifiers, sources, state):
    if modifiers[0] == "pack":
        return [convert_and_pack(modifiers, sources)]
    target, source = modifiers[-2:]
    if target in EIGHT_BITS:
        if source == "f16x2":
            parts = [convert_one("f16", EIGHT_BITS[target], modifiers, sources[0] >> place & 0xffff) for place in (0, 16)]
        else:
            parts = [convert_one(source, EIGHT_BITS[target], modifiers, value) for value in reversed(sources)]
        return [parts[0] | parts[1] << 8]
    if source in EIGHT_BITS:
        parts = [convert_one(EIGHT_BITS[source], "f16", modifiers, sources[0] >> place & 0xff) for place in (0, 8)]
        return [parts[0] | parts[1] << 16]
    if target in PACKED:
        parts = [convert_one(source, PACKED[target], modifiers, value) for value in reversed(sources)]
        return [parts[0] | parts[1] << 16]
    return [convert_one(source, target, modifiers, sources[0])]


def convert_one(source, target, modifiers, bits):
    mode = rounding_of(modifiers)
    if source not in FORMATS:
        value = number(bits, source)
        if target not in FORMATS:
            value = clamp(value, target) if "sat" in modifiers else value
            return number(value, target)
        return finish(target, (int(value < 0), Fraction(abs(value))), modifiers, mode)
    value = decode(source, bits)
    if "ftz" in modifiers and source == "f32":
        value = flush(source, value)
    if target not in FORMATS:
        return float_to_integer(value, target, mode, source)
    if mode.endswith("i") and isinstance(value[1], Fraction):
        value = (value[0], Fraction(round_integer(value, mode)))
    flushed = [part for part in modifiers if part != "ftz" or target == "f32"]
    return finish(target, value, flushed, mode[:2] if mode.endswith("i") else mode)


def float_to_integer(value, target, mode, source):
    if is_nan(value):
        return 0
    if is_infinite(value):
        return clamp(-(1 << 70) if value[0] else 1 << 70, target)
    whole = round_integer(value, mode)
    return clamp(-whole if value[0] else whole, target)


def convert_and_pack(modifiers, sources):
    kind = modifiers[2]
    bits = int(kind[1:])
    high, low = (bits_of(clamp(signed(value, 32), kind), bits) for value in sources[:2])
    rest = sources[2] if len(sources) == 3 else 0
    return bits_of(rest << (2 * bits), 32) | high << bits | low


# ------------------------------------------------------------------------------------ straight-line kernels

def move(opcode, modifiers, sources, state):
    return [sources[0]]


HANDLERS = {
    **{name: arithmetic for name in [*INTEGER_OPERATIONS, "fma", "rcp", "sqrt"]},
    **{name: bit_operation for name in ("and or xor not cnot shl shr popc clz brev bfind fns bfe bfi bmsk szext prmt lop3 shf dp4a dp2a").split()},
    "setp": set_predicates, "set": set_value, "selp": select, "slct": select, "testp": test_property, "copysign": copy_sign,
    "cvt": convert, "mov": move,
}
ATOMIC = {"inc": lambda old, value: 0 if old >= value else old + 1, "dec": lambda old, value: value if old == 0 or old > value else old - 1,
          "exch": lambda old, value: value}


def split_operands(text):
    return [part.strip() for part in re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,{\[])+", text)]


def statements(case):
    """(opcode, modifiers, targets, sources) of each instruction."""
    for line in case.body.replace("\n", " ").split(";"):
        line = line.strip()
        if not line or line.startswith("."):
            continue
        found = re.fullmatch(r"([a-z0-9]+)((?:\.[A-Za-z0-9_]+)*)\s+(.*)", line)
        if not found or line.startswith("@") or ":" in line:
            raise NotCovered(line)
        opcode, modifiers = found.group(1), found.group(2).strip(".").split(".")
        operands = split_operands(found.group(3))
        if opcode not in HANDLERS and opcode not in ("st", "ld", "atom", "red"):
            raise NotCovered(opcode)
        yield opcode, modifiers, operands[0].split("|"), operands[1:]


def widths(case):
    names = cases.operand_names(len(case.operands)) + cases.result_names(len(case.results))
    return {name: 1 if kind == "pred" else cases.register_bits(kind) for name, kind in zip(names, case.operands + case.results)}


def width_of(register, known):
    return known.get(register) or {"h": 16, "w": 32, "l": 64}.get(register[1:2], 64)


def read(text, registers, known):
    if text.startswith("{"):
        total, place = 0, 0
        for part in text.strip("{}").split(","):
            total |= read(part.strip(), registers, known) << place
            place += width_of(part.strip(), known)
        return total
    if text.startswith("!"):
        return 1 - registers[text[1:]]
    if text.startswith("%"):
        return registers.get(text, 0)
    if re.fullmatch(r"0[fd][0-9a-fA-F]+", text):
        raise NotCovered("a float's bits")
    return int(text, 0) if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)", text) else 0


def write(text, value, registers, known):
    place = 0
    for part in text.strip("{}").split(","):
        part = part.strip()
        bits = 16 if part == "_" else width_of(part, known)
        registers[part] = bits_of(value >> place, bits)
        place += bits


def touch_memory(opcode, modifiers, targets, values, memory, state):
    """ld, st, atom, red of one address that is spelled the same way each time: the memory is a dictionary."""
    kind = modifiers[-1]
    operation = next((part for part in modifiers if part in ("add", "min", "max", "and", "or", "xor", "inc", "dec", "exch", "cas")), None)
    if any(part in ("v2", "v4", "b128") for part in modifiers) or (operation is None and opcode in ("atom", "red")):
        raise NotCovered("vectors")
    address, values = (targets[0], values) if opcode in ("st", "red") else (values[0], values[1:])
    if not isinstance(address, str) or (opcode == "ld" and address not in memory):
        raise NotCovered("an address")
    old = memory.get(address, 0)
    if opcode == "ld":
        if memory["kind"] != BITS[kind]:
            raise NotCovered("another width")
        return [old]
    if opcode == "st":
        memory[address], memory["kind"] = bits_of(values[0], BITS[kind]), BITS[kind]
        return []
    if operation == "cas":
        new = values[1] if old == values[0] else old
    elif operation in ATOMIC:
        new = ATOMIC[operation](old, values[0])
    elif operation in ("and", "or", "xor"):
        new = bit_operation(operation, [kind], [old, values[0]], state)[0]
    else:
        new = arithmetic(operation, [kind], [old, values[0]], state)[0]
    memory[address] = bits_of(new, BITS[kind])
    return [old]


def run_lane(program, values, known):
    registers, memory, state = dict(values), {}, {}
    for opcode, modifiers, targets, sources in program:
        read_sources = [source if source.startswith("[") else read(source, registers, known) for source in sources]
        if opcode in ("st", "ld", "atom", "red"):
            results = touch_memory(opcode, modifiers, targets, read_sources, memory, state)
            if opcode in ("st", "red"):
                continue
        else:
            results = HANDLERS[opcode](opcode, modifiers, read_sources, state)
        for target, result in zip(targets, results):
            write(target, result, registers, known)
    return registers


def straight_line(case):
    if case.compare == cases.UNSPECIFIED:
        raise NotCovered("unspecified")
    program, known = list(statements(case)), widths(case)
    names = cases.operand_names(len(case.operands))
    outcomes = []
    for row in case.inputs.tolist():
        values = {name: int(value != 0) if kind == "pred" else bits_of(value, known[name]) for name, kind, value in zip(names, case.operands, row)}
        registers = run_lane(program, values, known)
        outcomes.append([registers[name] for name in cases.result_names(len(case.results))])
    return outcomes


# --------------------------------------------------------------------------------------------------- warps

def each_warp(case, function):
    rows = case.inputs.tolist()
    return [outcome for start in range(0, len(rows), 32) for outcome in function(rows[start:start + 32])]


def shuffle(case):
    mode = case.form.split(".")[2]
    immediate = "immediate" in case.form

    def one(rows):
        outcomes = []
        for lane, (_, distance, limits) in enumerate(rows):
            distance, limits = (3, 0 if mode == "up" else 31) if immediate else (distance & 31, limits)
            bound, segments = limits & 31, limits >> 8 & 31
            last = (lane & segments) | (bound & ~segments)
            source = {"up": lane - distance, "down": lane + distance, "bfly": lane ^ distance,
                      "idx": (lane & segments) | (distance & ~segments & 31)}[mode]
            inside = source >= last if mode == "up" else source <= last
            value = rows[source if inside else lane][0]
            outcomes.append([value] if immediate else [value, int(inside)])
        return outcomes
    if "members" in case.form:
        return each_warp(case, lambda rows: [[rows[row[1]][0] if row[2] >> lane & 1 else 0] for lane, row in enumerate(rows)])
    return each_warp(case, one)


def vote(case):
    def one(rows):
        mask = rows[0][1]
        votes = [rows[lane][0] ^ ("not" in case.form) for lane in range(32) if mask >> lane & 1]
        ballot = sum((rows[lane][0] ^ ("not" in case.form)) << lane for lane in range(32) if mask >> lane & 1)
        result = {"all": int(all(votes)), "any": int(any(votes)), "uni": int(len(set(votes)) == 1), "ballot": ballot}[case.form.split(".")[2]]
        return [[result if mask >> lane & 1 else 0] for lane in range(32)]
    return each_warp(case, one)


def match(case):
    every = ".all." in case.form

    def one(rows):
        mask = rows[0][1]
        equal = [sum(1 << other for other in range(32) if mask >> other & 1 and rows[other][0] == row[0]) for row in rows]
        if every:
            return [[mask, 1] if mask >> lane & 1 and equal[lane] == mask else [0, 0] for lane in range(32)]
        return [[equal[lane] if mask >> lane & 1 else 0] for lane in range(32)]
    return each_warp(case, one)


def warp_reduction(case):
    _, _, operation, kind = case.form.split(".")

    def one(rows):
        mask = rows[0][1]
        total = None
        for lane in range(32):
            if mask >> lane & 1:
                value = number(rows[lane][0], kind)
                total = value if total is None else {"add": total + value, "min": min(total, value), "max": max(total, value), "and": total & value,
                                                     "or": total | value, "xor": total ^ value}[operation]
        return [[bits_of(total, 32) if mask >> lane & 1 else 0] for lane in range(32)]
    return each_warp(case, one)


# --------------------------------------------------------------------------------- atomics of a whole block

def reduction_of_block(case):
    """Lane 0 of a block stores its value, the others add theirs (inc and dec: 50); the order does not matter."""
    operation, kind = case.form.split(".")[2:4]
    bits, rows, outcomes = BITS[kind], [row[0] for row in case.inputs.tolist()], []
    for start in range(0, len(rows), 128):
        total = rows[start]
        for value in rows[start + 1:start + 128]:
            if operation in ATOMIC:
                total = ATOMIC[operation](total, 50)
            elif operation in ("and", "or", "xor"):
                total = bit_operation(operation, [kind], [total, value], {})[0]
            else:
                total = bits_of(arithmetic(operation, [kind], [total, value], {})[0], bits)
        outcomes += [[total]] * 128
    return outcomes


# -------------------------------------------------------------------------------------- video instructions

VIDEO = {"vadd": lambda a, b: a + b, "vsub": lambda a, b: a - b, "vabsdiff": lambda a, b: abs(a - b), "vmin": min, "vmax": max,
         "vavrg": lambda a, b: (a + b + (1 if a + b >= 0 else 0)) >> 1}


def video_part(opcode, modifiers, left, right):
    if opcode == "vset":
        return int(compare(modifiers[2], "s64", [], left, right))
    return VIDEO[opcode](left, right)


def scalar_video(case):
    """vadd ... of whole registers or of %a.b1 and %b.h1, with a second operation if there is one."""
    opcode, *modifiers = case.body.split()[0].split(".")
    target = modifiers[0]
    if opcode not in VIDEO and opcode != "vset":
        raise NotCovered(opcode)
    left_kind, right_kind = modifiers[:2] if opcode == "vset" else modifiers[1:3]

    def read_part(value, kind, width, place):
        value = value >> place & ((1 << width) - 1)
        return signed(value, width) if kind[0] == "s" else value

    parts = ".b1" in case.body
    outcomes = []
    for row in case.inputs.tolist():
        left = read_part(row[0], left_kind, *((8, 8) if parts else (32, 0)))
        right = read_part(row[1], right_kind, *((16, 16) if parts else (32, 0)))
        result = video_part(opcode, modifiers, left, right)
        if "sat" in modifiers:
            result = clamp(result, target)
        if len(row) == 3:
            result, third = number(result, target), number(row[2], target)
            result = {"add": result + third, "min": min(result, third), "max": max(result, third)}[modifiers[-1]]
        outcomes.append([result])
    return outcomes


def packed_video(case):
    """vadd2, vadd4 ...: each part by itself, or their sum and %c. Without .sat a part is cut."""
    opcode, *modifiers = case.body.split()[0].split(".")
    opcode, count = opcode[:-1], int(opcode[-1])
    bits, total = 32 // count, modifiers[-1] == "add"
    kind = modifiers[1]
    outcomes = []
    for row in case.inputs.tolist():
        result = row[2] if total else 0
        for place in range(0, 32, bits):
            left, right = ((signed if kind == "s32" else bits_of)(value >> place, bits) for value in row[:2])
            part = video_part(opcode, modifiers, left, right)
            if "sat" in modifiers:
                part = clamp(part, f"{modifiers[0][0]}{bits}")
            result = result + part if total else result | bits_of(part, bits) << place
        outcomes.append([result])
    return outcomes


# ------------------------------------------------------------------------------------------------ matrices

def elements(kind, register, width):
    """Numbers in a register, the lowest bits first."""
    bits = cases.element_bits(kind)
    parts = [register >> place & ((1 << bits) - 1) for place in range(0, width, bits)]
    if kind in FORMATS:
        return [float_of(decode(kind, part)) for part in parts]
    return [signed(part, bits) if kind[0] == "s" else part for part in parts]


def float_of(value):
    sign, magnitude = value
    size = math.nan if magnitude is NOT_A_NUMBER else math.inf if magnitude is INFINITY else float(magnitude)
    return -size if sign else size


def fragments(rows, kind, start, count, width, tall):
    """A dictionary (row, column) -> number of A; of B, whose rows are columns of the product."""
    per_register = width // cases.element_bits(kind)
    result = {}
    for lane, row in enumerate(rows):
        for register in range(count):
            upper, step = (register & 1, register >> 1) if tall else (0, register)
            for place, value in enumerate(elements(kind, row[start + register], width)):
                result[(lane >> 2) + 8 * upper, (lane & 3) * per_register + place + 4 * per_register * step] = value
    return result


def matrix(found):
    shape = [max(place) + 1 for place in zip(*found)]
    result = np.zeros(shape, dtype=object if all(isinstance(value, int) for value in found.values()) else float)
    for place, value in found.items():
        result[place] = value
    return result


def matrix_product(case):
    parts = case.form.split(".")
    shape = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", parts[3])
    kinds = [part for part in parts[6:] if part in BITS or part in ("e4m3", "e5m2", "u4", "s4", "b1")]
    kind_a, kind_b, kind_c = kinds[1:4]
    width = 64 if kind_a == "f64" else 32
    tall = shape.group(1) == "16"
    count_a = int(shape.group(1)) * int(shape.group(3)) * cases.element_bits(kind_a) // (32 * width)
    count_b = int(shape.group(2)) * int(shape.group(3)) * cases.element_bits(kind_b) // (32 * width)

    def one(rows):
        left = matrix(fragments(rows, kind_a, 0, count_a, width, tall))
        right = matrix(fragments(rows, kind_b, count_a, count_b, width, False))
        if kind_a == "b1":
            product = [[sum((one ^ two) if "xor" in parts else (one & two) for one, two in zip(row, column)) for column in right] for row in left]
        else:
            with np.errstate(invalid="ignore"):
                product = left.dot(right.T)
        return [accumulate(product, row, lane, kind_c, count_a + count_b, "satfinite" in parts) for lane, row in enumerate(rows)]
    return each_warp(case, one)


def accumulate(product, row, lane, kind, start, saturate):
    width = 64 if kind == "f64" else 32
    outcomes = []
    place = 0
    for register in row[start:]:
        result = 0
        for part, value in enumerate(elements(kind, register, width)):
            with np.errstate(invalid="ignore"):
                total = value + product[(lane >> 2) + 8 * (place >> 1)][2 * (lane & 3) + (place & 1)]
            result |= result_bits(total, kind, saturate) << (16 * part)
            place += 1
        outcomes.append(result)
    return outcomes


def result_bits(total, kind, saturate):
    if kind == "s32":
        return bits_of(clamp(total, "s32") if saturate else total, 32)
    total = float(total)
    if math.isnan(total):
        return encode(kind, NAN)
    sign = int(math.copysign(1, total) < 0)
    return encode(kind, (sign, INFINITY if math.isinf(total) else Fraction(abs(total))))


def wmma(case):
    """Matrices in the memory of a warp: A at 0, B at 512, C at 1024 bytes; D over the result slots."""
    m, n, k = (int(part) for part in re.search(r"m(\d+)n(\d+)k(\d+)", case.form).groups())
    left, right, kind, result = case.name.split("_")[2:]
    outcomes = []
    for start in range(0, case.lanes, 32):
        memory = case.inputs[start:start + 32].astype("<u8").tobytes()
        one = read_matrix(memory, 0, kind, m, k, left == "col")
        other = read_matrix(memory, 512, kind, k, n, right == "col")
        third = read_matrix(memory, 1024, result, m, n, False)
        size = BITS[result] // 8
        total = [result_bits(value, result, False).to_bytes(size, "little") for value in (one.dot(other) + third).reshape(-1).tolist()]
        slots = np.frombuffer(b"".join(total).ljust(1024, b"\0"), dtype="<u8").reshape(32, 4)
        outcomes += slots.tolist()
    return outcomes


def read_matrix(memory, start, kind, rows, columns, by_columns):
    size = BITS[kind] // 8
    words = [int.from_bytes(memory[start + size * place:start + size * (place + 1)], "little") for place in range(rows * columns)]
    values = np.array([elements(kind, word, BITS[kind])[0] for word in words], dtype=float if kind in FORMATS else object)
    return values.reshape(columns, rows).T if by_columns else values.reshape(rows, columns)


def halves_of_row(row):
    return [row[place >> 1] >> (16 * (place & 1)) & 0xffff for place in range(8)]


def matrix_memory(case):
    """ldmatrix, stmatrix: lane l of a warp gives the address of row 5 l + 3."""
    count, transposed = int(re.search(r"\.x(\d)", case.form).group(1)), ".trans" in case.form

    def place_of(lane, part):
        row, column = lane >> 2, 2 * (lane & 3) + part
        return (column, row) if transposed else (row, column)

    def one(rows):
        loading = case.form.startswith("ldmatrix")
        memory = [halves_of_row(row) if loading else [0x1111] * 8 for row in rows]
        outcomes = []
        for lane, row in enumerate(rows):
            outcomes.append([0] * count)
            for part, tile in ((part, tile) for part in (0, 1) for tile in range(count)):
                line, column = place_of(lane, part)
                address = (5 * (8 * tile + line) + 3) & 31
                if loading:
                    outcomes[-1][tile] |= memory[address][column] << (16 * part)
                else:
                    memory[address][column] = row[tile] >> (16 * part) & 0xffff
        return outcomes if loading else [[row[2 * k] | row[2 * k + 1] << 16 for k in range(4)] for row in memory]
    return each_warp(case, one)


def transposed_matrix(case):
    def one(rows):
        def half(row, column):
            return rows[4 * row + (column >> 1)][0] >> (16 * (column & 1)) & 0xffff
        return [[half(2 * (lane & 3), lane >> 2) | half(2 * (lane & 3) + 1, lane >> 2) << 16] for lane in range(32)]
    return each_warp(case, one)


# -------------------------------------------------------------------------------------- memory and barriers

def load(case):
    offset = int((re.search(r"\[%in\+(\d+)\]", case.body) or [0, 0])[1])
    kind = next(part for part in case.body.split()[0].split(".") if part in BITS)
    return [[number(row[0] >> (8 * offset), kind)] for row in case.inputs.tolist()]


def store(case):
    """Eight bytes of ones, of which the store changes as many as its type has."""
    if "from_" not in case.name:
        return [[row[0], row[0]] for row in case.inputs.tolist()]
    kind = case.form.split(".")[-1]
    mask = (1 << BITS[kind]) - 1
    return [[row[0], ((1 << 64) - 1) & ~mask | row[0] & mask] for row in case.inputs.tolist()]


def vector_memory(case):
    kind = case.name.split("_")[-1]
    read_as = number if kind not in FORMATS else lambda value, _: value
    return [[read_as(value, kind) for value in row] for row in case.inputs.tolist()]


def asynchronous_copy(case):
    size = int(case.name.split("_")[5])
    outcomes = []
    for row in case.inputs.tolist():
        source = b"".join(value.to_bytes(8, "little") for value in row[:2])[:size]
        if "src_size" in case.name:
            source = source[:row[2]].ljust(size, b"\0")
        if "ignore" in case.name and row[3]:
            source = bytes(size)
        if "predicated" in case.name and not row[3]:
            source = b""
        result = source + b"\x77" * (16 - len(source))
        outcomes.append([int.from_bytes(result[:8], "little"), int.from_bytes(result[8:], "little")])
    return outcomes


def each_block(case, function):
    rows = [row[0] for row in case.inputs.tolist()]
    return [outcome for start in range(0, len(rows), 128) for outcome in function(rows[start:start + 128])]


def barrier(case):
    def source(lane):
        if "arrive" in case.name:
            return lane if lane < 64 else lane - 64
        return lane ^ 32 if "half" in case.name else (lane + 32) & 127
    return each_block(case, lambda rows: [[rows[source(lane)]] for lane in range(128)])


def barrier_reduction(case):
    def one(rows):
        votes = [row ^ ("!" in case.body) for row in rows]
        return [[{"popc": sum(votes), "and": int(all(votes)), "or": int(any(votes))}[case.form.split(".")[2]]]] * 128
    return each_block(case, one)


# --------------------------------------------------------------------------------------------------- check

SPECIAL = [(r"red\..*one_address", reduction_of_block), (r"v[a-z]+[24]\.", packed_video), (r"v(add|sub|absdiff|min|max|set|shl|shr|mad)\.", scalar_video),
           (r"wmma", wmma), (r"(ld|st)matrix", matrix_memory), (r"movmatrix", transposed_matrix), (r"ld\.\S+ and st$", vector_memory),
           (r"ld\.\S*global", load), (r"st\.\S*global", store), (r"cp\.async\.c[ag]", asynchronous_copy),
           (r"bar(rier)?(\.cta)?\.(sync|arrive)", barrier), (r"bar(rier)?\.red", barrier_reduction),
           ("shfl.sync", shuffle), ("vote.sync", vote), ("match.", match), ("redux.sync", warp_reduction), ("mma.sync", matrix_product)]


def reference(case):
    """Results as cases.compact stores them; NotCovered if there is no reference."""
    function = next((function for form, function in SPECIAL if re.match(form, case.form)), straight_line)
    outcomes = function(case)
    sizes = cases.result_sizes(case)
    parts = [np.array([outcome[place] & ((1 << (8 * size)) - 1) for outcome in outcomes], dtype=f"<u{size}") for place, size in enumerate(sizes)]
    return np.concatenate([part.view(np.uint8) for part in parts])


def describe_difference(case, got, want, wrong):
    lane = int(np.flatnonzero(wrong)[0])
    operands = " ".join(f"{int(value):#x}" for value in case.inputs[lane][:6])
    sides = [" ".join(f"{int(column[lane]):#x}" for column in list(cases.columns(case, side))[:4]) for side in (got, want)]
    return f"{case.name}: {int(wrong.sum())} of {case.lanes} lanes, lane {lane}: {operands} -> {sides[0]}, reference {sides[1]}"


def suspicious(case, got):
    """Results that say nothing: the same bytes in every lane, though operands differ."""
    return case.lanes >= 32 and len(case.operands) > 0 and not got.any()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    parser.add_argument("--only", default="", help="a regular expression for names of cases")
    options = parser.parse_args()
    stored = np.load(options.folder / "ptx.npz") if options.folder else {}
    if options.folder:
        print({name: value for name, value in json.loads((options.folder / "ptx.json").read_text()).items() if name not in ("cases",)})
    covered = differing = missing = 0
    uncovered = []
    for case in cases.cases():
        if not re.search(options.only, case.name):
            continue
        if options.folder and case.name not in stored:
            missing += 1
            continue
        if options.folder and suspicious(case, stored[case.name]):
            print(f"{case.name}: all results are zero")
        try:
            want = reference(case)
        except NotCovered:
            uncovered.append(case.name)
            continue
        except Exception as error:  # a mistake of the reference must not hide the other cases
            print(f"{case.name}: the reference fails: {error!r}")
            continue
        covered += 1
        if options.folder:
            wrong = ~cases.same(case, stored[case.name], want)
            differing += bool(wrong.any())
            if wrong.any():
                print(describe_difference(case, stored[case.name], want, wrong))
    print(f"{covered} cases have a reference, {len(uncovered)} have none, {missing} have no result; {differing} differ")
    if not options.folder:
        print("without reference:", *uncovered)


if __name__ == "__main__":
    main()
