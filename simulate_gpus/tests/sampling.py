# SPDX-License-Identifier: MIT
"""Which cases of a long table a test takes: a part, always the same; or all of them, with random numbers that the
environment variable TEST_SEED chooses (scripts/test --full sets it to the day). And what these tests do with LibTorch's
samples, and how they end."""
import os
import random
import sys

import torch

SEED = os.environ.get("TEST_SEED")


def sampled(cases, part):
    """One in `part` of them, in their order."""
    cases = list(cases)
    if SEED:
        print(f"all {len(cases)} cases, with seed {SEED}", file=sys.stderr)
        return cases
    chosen = sorted(random.Random(0).sample(range(len(cases)), -(-len(cases) // part)))
    return [cases[i] for i in chosen]


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors(part)]
    return []


def moved(value, device):
    """The value with its tensors there, and where it names the CPU that device."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(device).requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        parts = [moved(part, device) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {name: moved(part, device) for name, part in value.items()}
    return device if str(value) == "cpu" else value


def leave(status):
    """Without the end of Python's interpreter. There Python 3.11 ends each thread that asks for its lock, as one of LibTorch's
    backward passes may: seen once in hundreds of runs, as "terminate called without an active exception"."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
