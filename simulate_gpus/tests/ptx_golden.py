"""The PTX engine beside an H100: all recorded forms of instructions over edge values, and random programs
(card/ptx, card/h100/ptx.npz).

    ptx_golden.py RUNNER [--only REGULAR_EXPRESSION]

RUNNER is ptx_golden.cpp's program. Results are compared bit for bit as far as the PTX manual specifies them; `known`
lists the forms in which the engine differs from the card, each with its reason.
"""

import argparse
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy as np

CARD = pathlib.Path(__file__).resolve().parent.parent / "card"
sys.path.insert(0, str(CARD / "ptx"))
import cases  # noqa: E402
import take  # noqa: E402

# Patterns of names of cases, and why the engine's results may be others than the card's. The manual decides where the
# card departs from it, and where it leaves a choice the engine's is as good.
known = {
    r"ex2_approx_f16x2": "the manual's bound of 2^-9.9 holds for the engine; the card has 0 for what is next to the smallest denormal",
    r"vadd_u32_(u32_u32|u32_s32|s32_u32)_sat": "the manual clamps unsigned results; the card's code for them lets them wrap around",
    r"(vadd_u32_(u32_u32|u32_s32|s32_u32)|vabsdiff_(u32_u32_s32|u32_s32_u32|s32_s32_s32)|vmin_u32_(u32_s32|s32_u32))_(min|max)":
        "the card's code for the second operation orders two numbers with their top bits set the wrong way round",
    r"vmad_u32_u32_u32_(shr7|shr15|sat|sat_shr7)": "the manual keeps the product's bits above 32; the card's code for it does not",
    r"program_(45|101|114|136|154|159|237)":
        "NVIDIA's assembler stores the low byte of a register that holds a float as the float itself, converted to a byte",
    r"program_193": "NVIDIA's assembler takes what abs.s32 gives as below 2^31, which the smallest number's is not",
    r"wmma_.*_(f16|bf16)_f32": "the manual leaves order and precision of the sums open; the card cuts them below the largest",
}


def text_of(value):
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<I", len(data)) + data


def described(case):
    inputs = np.ascontiguousarray(case.inputs, dtype="<u8").tobytes()
    numbers = (*case.grid, *case.block, case.shared_bytes, case.lanes, case.result_bytes)
    return text_of(case.name) + struct.pack("<9I", *numbers) + text_of(inputs)


class Results:
    """What the runner wrote: for each case the bytes of its results, or a text."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def next(self):
        (size,) = struct.unpack_from("<I", self.data, self.at)
        self.at += 4 + size
        return self.data[self.at - size:self.at]

    def of_case(self, case):
        found = self.next()
        if found or not case.result_bytes:
            return found, ""
        return None, self.next().decode(errors="replace")


def run(runner, groups):
    with tempfile.TemporaryDirectory() as folder:
        work, results = pathlib.Path(folder) / "work", pathlib.Path(folder) / "results"
        with work.open("wb") as file:
            file.write(struct.pack("<I", len(groups)))
            for group in groups:
                file.write(text_of(cases.module_text(group)) + struct.pack("<I", len(group)))
                for case in group:
                    file.write(described(case))
        subprocess.run([runner, work, results], check=True)
        return Results(results.read_bytes())


class Golden(unittest.TestCase):
    runner, only = None, ""

    def test_every_recorded_form(self):
        recorded = np.load(CARD / "h100" / "ptx.npz")
        facts = json.loads((CARD / "h100" / "ptx.json").read_text())["cases"]
        groups = [[case for case in group if re.search(self.only, case.name)] for group in cases.modules()]
        groups = [group for group in groups if group]
        results = run(self.runner, groups)
        wrong, compared = [], 0
        for case in (case for group in groups for case in group):
            raw, failure = results.of_case(case)
            self.assertEqual(take.digest(case), facts[case.name]["digest"], f"{case.name} is another case than the recorded one")
            compared += 1
            difference = failure or self.difference(case, raw, recorded[case.name])
            is_known = any(re.fullmatch(pattern, case.name) for pattern in known)
            if bool(difference) != is_known:
                wrong.append(f"{case.name}: {difference or 'is as on the card now: take it out of the list'}")
        self.assertFalse(wrong, f"{len(wrong)} of {compared} forms:\n" + "\n".join(wrong[:400]))
        if not self.only:
            self.assertEqual(compared, len(facts))

    def difference(self, case, raw, want):
        got = cases.compact(case, raw)
        different = ~cases.same(case, got, want)
        if not different.any():
            return ""
        lane = int(np.flatnonzero(different)[0])
        operands = " ".join(f"{int(value):#x}" for value in case.inputs[lane][:6])
        sides = [" ".join(f"{int(column[lane]):#x}" for column in list(cases.columns(case, side))[:4]) for side in (got, want)]
        return f"{int(different.sum())} of {case.lanes} lanes, lane {lane}: {operands} -> {sides[0]}, card {sides[1]}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runner")
    parser.add_argument("--only", default="")
    options, rest = parser.parse_known_args()
    Golden.runner, Golden.only = options.runner, options.only
    unittest.main(argv=[sys.argv[0], *rest])
