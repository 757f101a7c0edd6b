# SPDX-License-Identifier: MIT
"""What the smallest operations take in Python's torch: the same as small_operations.cpp."""

import statistics
import sys
import timeit

import torch

BATCH = 10_000


def time(name, statement, names):
    timer = timeit.Timer(statement, globals=names)
    timer.timeit(1)
    batches = [timer.timeit(BATCH) / BATCH * 1e9 for _ in range(21)]
    print(f"{name} {statistics.median(batches):.1f}")


x, y = torch.arange(6.0).reshape(2, 3), torch.full((2, 3), 2.0)
names = {"x": x, "y": y}
time("add", "x + y", names)
time("mul", "x * y", names)
time("index+item", "x[1, 2].item()", names)
if not ((x + y).equal(torch.arange(2.0, 8).reshape(2, 3)) and x[1, 2].item() == 5):
    sys.exit("small_operations: WRONG RESULT")
