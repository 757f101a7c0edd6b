# SPDX-License-Identifier: MIT
"""Writes which functions of CUDA the simulated GPUs have into README.md beside it: those that the built libraries define, of
which the weak ones are refused.

Usage: functions.py LIBRARIES_FOLDER [--check]        as in build/dev/simulate_gpus/lib/simulate_gpus; --check: writes nothing,
and fails if the page is not up to date
"""
import re
import subprocess
import sys
import textwrap
from pathlib import Path

PAGE = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- functions -->\n", "<!-- end -->\n"
LIBRARIES = (("CUDA's runtime", "libcudart.so.*", r"(?:__)?cuda[A-Z]\w*"), ("CUDA's driver", "libcuda.so.1", r"cu[A-Z]\w*"),
             ("NVML", "libnvidia-ml.so.1", r"nvml[A-Z]\w*"), ("NCCL", "libnccl.so.2", r"p?nccl[A-Z]\w*"),
             ("CUPTI", "libcupti.so.*", r"cupti[A-Z]\w*"))


def functions(library, pattern):
    """Those simulated and those refused."""
    listed = subprocess.run(["nm", "--dynamic", "--defined-only", library], check=True, text=True, capture_output=True).stdout
    found = re.findall(rf" ([TW]) ({pattern})(?:@|$)", listed, re.MULTILINE)
    return [sorted(name for kind, name in found if kind == wanted) for wanted in "TW"]


def block(names):
    return "```text\n" + textwrap.fill(" ".join(names), 120) + "\n```\n"


def section(folder):
    rows, lists = "", ""
    for title, file, pattern in LIBRARIES:
        simulated, refused = functions(next(folder.glob(file)), pattern)
        rows += f"| {title} | {len(simulated) + len(refused)} | {len(simulated)} | {len(refused)} |\n"
        lists += (f"\n{title}, simulated:\n\n{block(simulated)}\n<details><summary>{title}, refused</summary>\n\n"
                  f"{block(refused)}\n</details>\n")
    return f"| | functions | simulated | refused |\n|---|---|---|---|\n{rows}{lists}"


def main(folder, check=None):
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    old, after = rest.split(END, 1)
    new = section(Path(folder))
    if check is None:
        PAGE.write_text(before + BEGIN + new + END + after)
    elif old != new:
        sys.exit(f"{PAGE} does not list the functions of {folder}: {sys.argv[0]} {folder} writes them")


main(*sys.argv[1:])
