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
KNOWN = {
    "past 2 MiB": ("sync cudaErrorIllegalAddress", "each access must be within an allocation, as compute-sanitizer has it"),
}
CASE = re.compile(r"(.{28}) launch (\w+), sync (\w+), last (\w+), malloc after (\w+), last (\w+) \| (.*)")
# Registers are ptxas's choice; one size is printed before it is known; the source has a folder.
VARIES = re.compile(r"regs \d+|(?<=3 cudaSuccess )\d+|(?<=block: )\[\d,0,0\](?=, thread)|^.*/(?=faults\.cu)")


def cases(text):
    """Each case's name, its own lines in alphabetical order, its codes, its text."""
    found, lines = {}, []
    for line in text.splitlines():
        if line.startswith("simulate_gpus: "):
            continue
        if match := CASE.fullmatch(line):
            name, *codes, said = match.groups()
            found[name.strip()] = (sorted({VARIES.sub("", each) for each in lines}), codes, said)
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
    ran = subprocess.run([simulate_gpus, "1", program], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
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
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
