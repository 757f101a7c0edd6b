#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares what faulty kernels and launches become on simulated GPUs with what an H100 answered (h100/faults.txt).

Usage: compare_faults.py SIMULATE_GPUS PROGRAM    PROGRAM: faults.cu, built by nvcc for sm_90 with its PTX
"""
import re
import subprocess
import sys
from pathlib import Path

# By case: what is different here, as a pattern of the whole case, and why.
CHECKED = r"sync cudaErrorIllegalAddress"
KNOWN = {
    "just past": (CHECKED, "each access is checked within its allocation, as compute-sanitizer does"),
    "past 2 MiB": (CHECKED, "the same"),
    "freed": (CHECKED, "the same: freed memory is no allocation"),
    "recursion 100": (r"launch cudaErrorNotSupported", "recursion is refused"),
    "recursion 1000000": (r"launch cudaErrorNotSupported", "the same; on the card it overflows in silence"),
}
CASE = re.compile(r"(.{28}) launch (\w+), sync (\w+), last (\w+), malloc after (\w+), last (\w+) \| (.*)")
# Registers are ptxas's choice; addresses differ; an uninitialized size is printed.
VARIES = re.compile(r"regs \d+|\b\d{9,}\b|^.*/(?=faults\.cu)", re.M)


def cases(text):
    """Each case's name, its own lines in alphabetical order, its codes, its text."""
    found, lines = {}, []
    for line in text.splitlines():
        if match := CASE.fullmatch(line):
            name, *codes, said = match.groups()
            found[name.strip()] = (sorted(VARIES.sub("", each) for each in lines), codes, said)
            lines = []
        elif re.match(r"== \d+ ended by signal", line):
            found["a wrong stream"] = ([line], [], "")
        else:
            lines.append(line)
    return found


def differs(here, card):
    # The text here goes on with the kernel and the thread.
    return here[:2] != card[:2] or not here[2].startswith(card[2])


def main():
    simulate_gpus, program = sys.argv[1:]
    ran = subprocess.run([simulate_gpus, "1", program], text=True, capture_output=True, timeout=300)
    here = cases(ran.stdout)
    card = cases((Path(__file__).parents[1] / "h100" / "faults.txt").read_text())
    wrong = [f"missing: {name}" for name in card.keys() ^ here.keys()]
    for name in card.keys() & here.keys():
        pattern, _ = KNOWN.get(name, ("", ""))
        if name in KNOWN:
            launched, waited = here[name][1][:2]
            if not re.search(pattern, f"launch {launched}, sync {waited}"):
                wrong.append(f"{name}: expected {pattern}, found {here[name]}")
        elif differs(here[name], card[name]):
            wrong.append(f"{name}:\n  here {here[name]}\n  card {card[name]}")
    print("\n".join(sorted(wrong)))
    print(f"{len(card)} cases, {len(KNOWN)} known to differ, {len(wrong)} wrong")
    if wrong:
        print(ran.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
