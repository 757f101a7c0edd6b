# SPDX-License-Identifier: MIT
"""Which cases of a long table a test takes: a part, always the same; or all of them, with random numbers that the
environment variable TEST_SEED chooses (scripts/test --full sets it to the day). And how such a test ends."""
import os
import random
import sys

SEED = os.environ.get("TEST_SEED")


def sampled(cases, part):
    """One in `part` of them, in their order."""
    cases = list(cases)
    if SEED:
        print(f"all {len(cases)} cases, with seed {SEED}", file=sys.stderr)
        return cases
    chosen = sorted(random.Random(0).sample(range(len(cases)), -(-len(cases) // part)))
    return [cases[i] for i in chosen]


def leave(status):
    """Without the end of Python's interpreter. There Python 3.11 ends each thread that asks for its lock, as one of LibTorch's
    backward passes may: seen once in hundreds of runs, as "terminate called without an active exception"."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
