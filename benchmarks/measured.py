# SPDX-License-Identifier: MIT
"""What scripts/bench has put into build/bench, read by budgets.py and plots.py."""

import json
import pathlib
import re
import statistics
from typing import NamedTuple

# What a GPU is asked for has one colour in all plots.
KERNELS, TO_GPU, TO_HOST, PEERS, WAITS = "#54788c", "#e3b23c", "#b5651d", "#8c6bb1", "#d07070"
ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build/bench"


class Times(NamedTuple):
    """Seconds of one run: low and high are the quartiles of all repetitions."""

    median: float
    low: float
    high: float


def benchmarks(program):
    """The Times by the parts of each benchmark's name, in the program's order; and the context."""
    file = FOLDER / f"{program}.json"
    if not file.exists():
        return {}, {}
    report = json.loads(file.read_text())
    seconds = {}
    for row in sorted(report["benchmarks"], key=lambda row: row["family_index"]):
        if row["run_type"] != "iteration" or row.get("error_occurred"):
            continue
        name = tuple(row["name"].removesuffix("/real_time").split("/")[1:])
        time = row["real_time"] * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[row["time_unit"]]
        seconds.setdefault(name, []).append(time)
    times = {}
    for name, all_of_it in seconds.items():
        low, median, high = (statistics.quantiles(all_of_it, n=4, method="inclusive")
                             if len(all_of_it) > 1 else all_of_it * 3)
        times[name] = Times(median, low, high)
    return times, report["context"]


def medians(file):
    """Of "name number" lines: the median of each name's numbers."""
    numbers = {}
    if (FOLDER / file).exists():
        for line in (FOLDER / file).read_text().splitlines():
            name, number = line.rsplit(" ", 1)
            numbers.setdefault(name, []).append(float(number))
    return {name: statistics.median(all_of_it) for name, all_of_it in numbers.items()}


def matches(file, pattern):
    """The groups of each line that the pattern matches."""
    if not (FOLDER / file).exists():
        return []
    return [found.groups() for found in re.finditer(pattern, (FOLDER / file).read_text(), re.M)]


def tables(file):
    """Of tables whose columns are two spaces apart, with an empty line before each: the rows under each
    heading, as (name, {column: whole number}), without what is no number."""
    found = {}
    text = (FOLDER / file).read_text() if (FOLDER / file).exists() else ""
    for table in text.split("\n\n")[1:]:
        (title, *columns), *rows = [re.split(r"  +", line.strip()) for line in table.strip().splitlines()]
        found[title] = [(name, {column: int(text) for column, text in zip(columns, texts) if text.isdigit()})
                        for name, *texts in rows]
    return found
